"""Whole files that anyone may have made."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from probes.errors import FileRefused, StorageError
from probes.plain_file import plain_json, plain_object, read_plain


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert read_plain(tmp_path / "x") == b"abc"
    with pytest.raises(StorageError, match="No such file"):
        read_plain(tmp_path / "gone")


def test_a_small_file_takes_little_memory_whatever_size_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    tracemalloc.start()
    try:
        read_plain(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_links_pipes_directories_devices_and_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "pipe", "."):
        with pytest.raises(FileRefused) as refused:
            read_plain(tmp_path / name)
        assert refused.value.code == "not-regular"
    with pytest.raises(FileRefused, match="is not a regular file"):
        read_plain(Path("/dev/zero"))
    os.truncate(tmp_path / "x", 1 << 40)
    with pytest.raises(FileRefused, match="at most 268435456 are read"):
        read_plain(tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b"9" * 21,
        b"18446744073709551616",
        b"9" * 5000,
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b'{"a": 1e999}',
        b"[-1e999]",
        b'"\\ud800"',
        b'{"\\udc00": 1}',
        b"\xff",
        b"\xef\xbb\xbf1",
        b"",
        b"{",
    ],
)
def test_json_that_other_functions_could_not_take_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        plain_json(text)


def test_json_within_the_bounds_is_read() -> None:
    assert plain_json(b'[1.5, 18446744073709551615, -1, "\\ud83d\\ude00", null, true]') == [1.5, 2**64 - 1, -1, "\U0001f600", None, True]
    assert plain_json(b"[" * 64 + b"]" * 64)
    with pytest.raises(ValueError, match="not a JSON object"):
        plain_object(b"[]")
