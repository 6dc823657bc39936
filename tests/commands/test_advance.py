"""Verbs that may take long say on a terminal how far they are, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from probes import cli
from probes.commands.rendering import advance_line
from probes.commands.rendering.advance_line import AdvanceLine
from probes.progress.loops import with_progress
from tests.reader.recorded import Recording, counted
from tests.script.test_progress import Terminal

LONG = {
    "verify": ("{run}",),
    "diff": ("{run}", "{run}"),
    "recover": ("{dead}",),
    "export": ("{run}", "-o", "{folder}/a.npz"),
    "show": ("{run}", "**"),
    "upload": ("{run}", "file://{folder}/there"),
    "report": ("{run}", "-o", "{folder}/report.html"),
}


def called(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.cli(words, prog_name="probes")
    assert ended.value.code in (0, 1)  # 1: the run has no manifest


@pytest.mark.parametrize("verb", LONG)
def test_a_verb_prints_its_progress_as_a_count(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, heard = Terminal(), []
    begin = AdvanceLine.begin
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(AdvanceLine, "begin", lambda line, noun, total: (heard.append((noun, total)), begin(line, noun, total))[1])
    run = counted(tmp_path / "run", 2)
    Recording(tmp_path / "dead").take(np.zeros(2, "<f4")).left()
    places = {"run": run, "dead": tmp_path / "dead", "folder": tmp_path}
    called([verb, *(word.format(**places) for word in LONG[verb])])
    assert heard
    assert all(total > 0 for _, total in heard)
    assert "2K" not in terminal.getvalue(), "a verb that is done within a second shows no line"


def test_the_line_names_nested_loops_and_disappears_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(advance_line, "PATIENCE_S", 0.0)
    monkeypatch.setattr(advance_line, "PAUSE", 0.01)
    with AdvanceLine("verify") as line, advance_line.reported_to(line):
        for file in with_progress(["a", "b"], "file"):
            for _ in with_progress(range(3), "series") if file == "b" else ():
                until = time.monotonic() + 5
                while "series 1 of 3" not in terminal.getvalue() and time.monotonic() < until:
                    time.sleep(0.01)
    assert "verify  file 2 of 2, series 1 of 3  0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")


def test_a_loop_outside_of_a_verb_reports_no_progress() -> None:
    assert list(with_progress([1, 2], "file")) == [1, 2]


def test_a_loop_that_ends_by_break_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())

    def broken(line: AdvanceLine) -> None:
        with advance_line.reported_to(line):
            for _ in with_progress([1, 2], "file"):
                raise ValueError("odd")

    with AdvanceLine("verify") as line:
        with pytest.raises(ValueError, match="odd"):
            broken(line)
        for _ in with_progress([3], "file"):
            pass
        assert line.loops == []
