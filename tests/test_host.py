from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probes.host import is_local, process_fields, started

NAMED = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, {name!r})
from probes.host import process_fields, started
import os
print(process_fields(os.getpid())[0], started(os.getpid()).isdecimal())
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell it")
@pytest.mark.parametrize("name", ["запускоб".encode()[:15], b") S 1 (", b"\xff\xfe", b"a b"])
def test_the_start_of_a_process_is_found_whatever_its_name_is(name: bytes) -> None:
    done = subprocess.run([sys.executable, "-c", NAMED.format(name=name)], capture_output=True, text=True, check=True)
    assert done.stdout == "R True\n"


def test_a_process_that_does_not_exist_has_no_start() -> None:
    assert process_fields(1 << 30) == []
    assert started(1 << 30) == ""


@pytest.mark.parametrize(("name", "escaped"), [("nfs", "nfs"), ("größe", "größe"), ("a b", "a\\040b"), ("back\\slash", "back\\134slash")])
def test_the_file_system_of_a_directory_is_found_whatever_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, escaped: str
) -> None:
    mounted = tmp_path / name
    mounted.mkdir()
    lines = f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / {tmp_path}/{escaped} rw - nfs4 server:/ rw\n"
    monkeypatch.setattr(Path, "read_bytes", lambda _: lines.encode())
    assert not is_local(mounted)
    assert is_local(tmp_path)
