"""A tracker that is slow, gone or broken delays nobody and is reported once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event

import pytest

from probes.component import Reading
from probes.errors import MissingExtra
from probes.sinks.kernels import background
from probes.sinks.kernels.background import BackgroundSession, Tracker
from tests.sinks.kernels.test_metrics import reading


class Recorder:
    """A tracker that keeps what it gets."""

    def __init__(self) -> None:
        self.sent: list[Sequence[Sequence[Reading]]] = []
        self.tags: Mapping[str, str] = {}

    def write(self, steps: Sequence[Sequence[Reading]]) -> None:
        self.sent.append(steps)

    def end(self, tags: Mapping[str, str]) -> None:
        self.tags = tags


def session(start: Callable[[], Tracker], wait: float = 10.0) -> BackgroundSession:
    return BackgroundSession(start, lambda: {"probes.ledger_head": "f00"}, wait)


def test_all_steps_arrive_in_order_several_at_once_and_the_tags_last() -> None:
    tracker, ready = Recorder(), Event()

    def start() -> Tracker:
        ready.wait()
        return tracker

    opened = session(start)
    given = [[reading({"": float(step)}, global_step=step)] for step in range(1000)]
    for readings in given:
        opened.step(readings)
    ready.set()
    opened.close()
    assert [one for steps in tracker.sent for one in steps] == given
    assert len(tracker.sent) < 10
    assert tracker.tags == {"probes.ledger_head": "f00"}


def test_a_tracker_that_hangs_delays_no_step_and_the_end_by_the_allowed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST_WAITING", 8)
    forever = Event()

    class Hanging(Recorder):
        def write(self, steps: Sequence[Sequence[Reading]]) -> None:
            forever.wait()

    opened = session(Hanging, wait=0.1)
    start = time.monotonic()
    for _ in range(100):
        opened.step([reading({"": 1.0})])
    with pytest.raises(OSError, match=r"did not answer within 0.1 s; \d+ steps are not in the tracker, and all are in the capture files"):
        opened.close()
    assert time.monotonic() - start < 60, "the tracker answers never"
    forever.set()


@pytest.mark.parametrize("error", [ConnectionError("refused\nmore"), ValueError("bad name"), RuntimeError(), SystemExit(1)], ids=repr)
def test_a_tracker_that_raises_is_reported_with_its_message(error: BaseException) -> None:
    def start() -> Tracker:
        raise error

    opened = session(start)
    opened.thread.join()
    for act in (lambda: opened.step([]), opened.close):
        with pytest.raises(OSError, match=type(error).__name__) as caught:
            act()
        assert "\n" not in str(caught.value)


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    def start() -> Tracker:
        raise MissingExtra("the sink `x` needs the package `x`")

    with pytest.raises(MissingExtra, match="needs the package"):
        session(start).close()
