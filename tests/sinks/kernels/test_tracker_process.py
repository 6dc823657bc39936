"""A tracker in a process of its own: what it is given arrives, what it raises is said, and it ends with the run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from probes.component import Reading
from probes.errors import MissingExtra
from probes.sinks.kernels.background import BackgroundSession
from probes.sinks.kernels.tracker_process import TrackerProcess
from tests.processes.running import until_gone
from tests.sinks.kernels.test_metrics import reading


class Noted:
    """A tracker that writes what it gets into a file, or fails in the way that is requested."""

    def __init__(self, path: Path, way: str = "") -> None:
        if way == "missing":
            raise MissingExtra("the sink `x` needs the package `x`")
        print("printed by a package")
        self.path, self.way = path, way

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        if self.way == "raises":
            raise ValueError("bad name\nmore")
        if self.way == "dies":
            os._exit(7)
        if self.way == "hangs":
            self.path.write_text(str(os.getpid()))
            time.sleep(600)
        with self.path.open("a") as file:
            file.writelines(f"{one.clock.global_step}\n" for readings in steps for one in readings)

    def end(self, tags: Mapping[str, str]) -> None:
        with self.path.open("a") as file:
            file.write(f"{tags['head']} at priority {os.nice(0)} in {os.getpid()}\n")


def session(path: Path, way: str = "", wait: float = 60.0) -> BackgroundSession:
    process = TrackerProcess(partial(Noted, path, way))
    return BackgroundSession(lambda: process, lambda: {"head": "f00"}, wait, process.give_up)


def test_numbers_for_a_tracker_arrive_in_another_process_of_a_lower_priority(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    opened = session(tmp_path / "noted")
    for step in range(600):
        opened.step([reading({"": float("nan")}, global_step=step)])
    opened.close()
    *steps, last = (tmp_path / "noted").read_text().splitlines()
    assert [*map(int, steps)] == [*range(600)]
    words = last.split()
    assert words[:4] == ["f00", "at", "priority", str(min(19, os.nice(0) + 10))]
    assert int(words[-1]) != os.getpid()
    assert capfd.readouterr().out == "", "stdout belongs to the program"


@pytest.mark.parametrize(
    ("way", "said"),
    [("raises", "ValueError: bad name"), ("dies", "the process that sends to the tracker has ended"), ("missing", "needs the package `x`")],
)
def test_an_error_in_the_child_is_reported_in_the_parent(tmp_path: Path, way: str, said: str) -> None:
    opened = session(tmp_path / "noted", way)
    opened.step([reading({"": 1.0})])
    with pytest.raises(MissingExtra if way == "missing" else OSError, match=said):
        opened.close()


@pytest.mark.usefixtures("greeting")
def test_the_greeting_of_an_interpreter_is_not_taken_for_an_answer_of_the_tracker(tmp_path: Path) -> None:
    opened = session(tmp_path / "noted")
    opened.step([reading({"": 1.0}, global_step=7)])
    opened.close()
    assert (tmp_path / "noted").read_text().startswith("7\nf00 at priority")


def test_a_process_that_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    opened = session(tmp_path / "pid", "hangs", wait=0.1)
    opened.step([reading({"": 1.0})])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        time.sleep(0.01)
    with pytest.raises(OSError, match=r"did not answer within 0\.1 s"):
        opened.close()
    opened.thread.join(30)
    assert not opened.thread.is_alive(), "the thread waited for the child, which is gone"
    until_gone(int((tmp_path / "pid").read_text()))
