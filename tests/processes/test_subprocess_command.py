from __future__ import annotations

import sys
from pathlib import Path

import pytest

from probes.processes.subprocess_command import answer_line, answered, interpreter, last_answer


def test_messages_are_found_in_the_output_of_anything() -> None:
    lines = b"welcome\n" + answer_line({"a": 1}) + b"no newline" + answer_line({"ä": [2]}) + b"{}\nbye"
    assert [answered(line) for line in lines.splitlines()] == [None, {"a": 1}, {"ä": [2]}, None, None]
    assert last_answer(lines) == {"ä": [2]}
    assert last_answer(b"welcome") is None


def test_the_interpreter_is_that_of_this_process() -> None:
    assert interpreter() == sys.executable


def test_a_frozen_program_has_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(FileNotFoundError, match="no Python interpreter"):
        interpreter()


@pytest.mark.parametrize("executable", [None, "", "/usr/bin/uwsgi", "/nonexistent/python3"])
def test_a_program_that_embeds_python_uses_the_interpreter_of_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "exec_prefix", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no Python interpreter"):
        interpreter()
    installed = tmp_path / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed.parent.mkdir()
    installed.touch(0o755)
    assert interpreter() == str(installed)
