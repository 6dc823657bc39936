"""Names of the files of a run directory."""

from __future__ import annotations

import pytest

from probes.errors import UsageError
from probes.run_directory.file_name import Stem, parse_stem


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("epoch-0003.journal", Stem(3)),
        ("epoch-12345.h5", Stem(12345)),
        ("epoch-0003.a2.h5", Stem(3, attempt=2)),
        ("epoch-0003.s0001.journal", Stem(3, segment=1)),
        ("epoch-0003.a2.s0010.rank-0004.h5", Stem(3, 2, 10, 4)),
        ("epoch-0000.rank-0000.h5", Stem(0, rank=0)),
    ],
)
def test_a_file_name_is_read_and_written(name: str, stem: Stem) -> None:
    assert parse_stem(name) == stem
    assert f"{stem}.{name.rpartition('.')[2]}" == name


@pytest.mark.parametrize(
    "name", ["spare.journal", "epoch-3.journal", "epoch-0003.h5.tmp", "epoch-0003.rank-0001.a2.h5", "../epoch-0003.h5", "epoch-0003.h5\n"]
)
def test_any_other_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a journal"):
        parse_stem(name)
