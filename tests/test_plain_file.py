"""Whole files that anyone may have made."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.errors import FileRefused, StorageError
from probes.plain_file import plain_json, plain_object, read_plain, write_page


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


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process grows beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_page_that_the_disk_does_not_take_leaves_the_former_page_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("former")
    with largest_file(4096), pytest.raises(StorageError, match=r'report\.html" cannot be written: File too large'):
        write_page(page, "x" * 10_000)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("report.html", "former")]


def test_a_page_keeps_the_mode_and_the_links_of_the_former_one(tmp_path: Path) -> None:
    page, link = tmp_path / ("long" * 60 + ".html"), tmp_path / "link.html"
    page.write_text("former")
    page.chmod(0o640)
    link.symlink_to(page)
    write_page(link, "later: ä")
    assert link.is_symlink()
    assert page.read_text(encoding="utf-8") == "later: ä"
    assert page.stat().st_mode & 0o777 == 0o640


def test_a_page_is_written_directly_where_the_folder_takes_no_new_file_or_the_page_is_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_page(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    page = tmp_path / "report.html"
    page.write_text("former")
    before, accessible = page.stat().st_ino, os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and accessible(path, mode))
    write_page(page, "later")
    assert (page.read_text(), page.stat().st_ino) == ("later", before)


def test_a_page_in_a_folder_that_does_not_exist_is_refused_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r'none/report\.html" cannot be written: No such file or directory'):
        write_page(tmp_path / "none" / "report.html", "text")
