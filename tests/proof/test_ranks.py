"""Runs of several processes, each of which has files and a ledger of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.digest import blake3_hex, canonical
from probes.errors import SeriesNotFound
from probes.proof.diff import diff
from probes.proof.verify import verify
from tests import independent_verifier
from tests.proof.runs import Change, write_run

RANKS = (0, 1)


def launch(path: Path, change: Change = lambda one, epoch: one, of: int = 1) -> dict[str, str]:
    """A run of two processes, with a change of one of them; the heads of its ledgers."""
    unchanged: Change = lambda one, epoch: one  # noqa: E731  # so that its type is checked
    ledgers = {rank: f"ledger.rank-{rank:04d}.jsonl" for rank in RANKS}
    return {ledgers[rank]: write_run(path, rank=rank, change=change if rank == of else unchanged) for rank in RANKS}


def codes(path: Path, **options: Any) -> set[str]:
    return {finding.code for finding in verify(path, **options).findings if not finding.note}


def test_a_run_of_two_processes_verifies_under_one_head(tmp_path: Path) -> None:
    heads = launch(tmp_path / "a")
    verdict = verify(tmp_path / "a")
    assert verdict.ok, verdict.findings
    assert independent_verifier.verifies(tmp_path / "a")
    assert [file.file for file in verdict.files][:2] == ["epoch-0000.rank-0000.h5", "epoch-0000.rank-0001.h5"]
    assert verdict.head == blake3_hex(canonical(heads))


def test_the_head_of_the_run_and_of_each_ledger_are_anchors(tmp_path: Path) -> None:
    heads = launch(tmp_path / "a")
    for anchor in (verify(tmp_path / "a").head, [*heads.values()]):
        verdict = verify(tmp_path / "a", anchor=anchor)
        assert verdict.ok, verdict.findings
        assert verdict.anchored


def test_the_head_of_one_ledger_anchors_that_ledger_only(tmp_path: Path) -> None:
    for head in launch(tmp_path / "a").values():
        verdict = verify(tmp_path / "a", anchor=head)
        assert verdict.ok
        assert not verdict.anchored
        assert [finding.code for finding in verdict.findings] == ["anchor-partial"]


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_anchor_of_all_ranks_remains_valid_while_the_run_continues(attempt: int, tmp_path: Path) -> None:
    launch(tmp_path / "a")
    head = verify(tmp_path / "a").head
    for rank in RANKS:
        write_run(tmp_path / "a", rank=rank, epochs=4, first=2, attempt=attempt)
    verdict = verify(tmp_path / "a", anchor=head)
    assert verdict.ok, verdict.findings
    assert verdict.anchored
    assert {finding.code for finding in verdict.findings} == {"ledger-grown"}


@pytest.mark.parametrize("rank", RANKS)
def test_a_rank_whose_last_lines_were_removed_is_found_by_the_head_of_the_run(rank: int, tmp_path: Path) -> None:
    launch(tmp_path / "a")
    head, ledger = verify(tmp_path / "a").head, tmp_path / "a" / f"ledger.rank-{rank:04d}.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    (tmp_path / "a" / f"epoch-0001.rank-{rank:04d}.h5").unlink()
    assert codes(tmp_path / "a") == {"launch-differs"}, "the other rank has the epoch"
    assert codes(tmp_path / "a", anchor=head) == {"launch-differs", "ledger-rolled-back"}


def test_a_removed_or_replaced_rank_is_found(tmp_path: Path) -> None:
    launch(tmp_path / "a")
    launch(tmp_path / "b")
    (tmp_path / "a" / "ledger.rank-0001.jsonl").unlink()
    assert codes(tmp_path / "a") == {"file-unlisted", "launch-differs"}
    (tmp_path / "a" / "run.rank-0001.json").unlink()
    for path in (tmp_path / "a").glob("epoch-*.rank-0001.h5"):
        path.unlink()
    assert codes(tmp_path / "a") == {"launch-differs"}
    (tmp_path / "b" / "epoch-0000.rank-0001.h5").write_bytes((tmp_path / "b" / "epoch-0000.rank-0000.h5").read_bytes())
    assert codes(tmp_path / "b") == {"files-swapped"}
    assert not independent_verifier.verifies(tmp_path / "b")


def test_an_edited_or_removed_manifest_of_a_rank_is_found(tmp_path: Path) -> None:
    launch(tmp_path / "a")
    path = tmp_path / "a" / "run.rank-0001.json"
    path.write_text(path.read_text().replace('"--lr"', '"--lx"'))
    assert codes(tmp_path / "a") == {"manifest-edited"}
    path.unlink()
    assert codes(tmp_path / "a") == {"manifest-edited", "launch-differs"}


def test_diff_reports_the_rank_of_the_first_divergence(tmp_path: Path) -> None:
    launch(tmp_path / "a")
    launch(tmp_path / "same")
    assert diff(tmp_path / "a", tmp_path / "same").verdict == "same"
    launch(tmp_path / "b", lambda one, epoch: one._replace(bits=one.bits + 1) if one.key.probe == "big" and one.step == 2 else one)
    found = diff(tmp_path / "a", tmp_path / "b", bitwise=True)
    assert found.first is not None
    assert (found.first.clock.rank, found.first.clock.epoch, found.first.clock.step) == (1, 0, 2)
    assert found.counts["different"] == 2


def test_diff_reports_a_missing_rank(tmp_path: Path) -> None:
    launch(tmp_path / "a")
    write_run(tmp_path / "b", rank=0)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different"
    assert found.counts["missing"] == 50


def test_some_ranks_are_compared(tmp_path: Path) -> None:
    launch(tmp_path / "a")
    launch(tmp_path / "b", lambda one, epoch: one._replace(bits=one.bits * 2))
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "different"
    assert diff(tmp_path / "a", tmp_path / "b", rank=0).verdict == "same"
    assert diff(tmp_path / "a", tmp_path / "b", rank=[1]).verdict == "different"
    with pytest.raises(SeriesNotFound, match=r"\(rank 7\); ranks of its files: 0-1"):
        diff(tmp_path / "a", tmp_path / "b", rank=7)
