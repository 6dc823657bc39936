from __future__ import annotations

import pytest

from probes.sinks.kernels.run_file import name_fault, on_rank


@pytest.mark.parametrize("name", ["log.jsonl", "table_2.csv", "a-b.txt"])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert not name_fault(name)


OUTSIDE = ["../x.csv", "/x.csv", "a/x.csv", "x", ".csv", "x.csv\n", ""]
OF_THE_RECORD = ["ledger.jsonl", "ledger.rank-0001.jsonl", "run.json", "epoch-0000.h5"]


@pytest.mark.parametrize("name", OUTSIDE + OF_THE_RECORD)
def test_a_name_outside_the_directory_or_of_the_record_is_refused(name: str) -> None:
    assert name_fault(name)


def test_each_rank_has_a_separate_file() -> None:
    assert [on_rank("log.jsonl", rank) for rank in (0, 3)] == ["log.jsonl", "log.rank-0003.jsonl"]
