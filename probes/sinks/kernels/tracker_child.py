"""The child of `TrackerProcess`: makes a tracker, and executes requests until its input ends."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO, Any

from probes.errors import MissingExtra
from probes.sinks.kernels.tracker_process import READY, received, send

PRIORITY = 10  # lower than that of the training


def main() -> None:
    """Answer each request with None, or with the reason why it failed."""
    answers = os.fdopen(os.dup(1), "wb")
    answers.write(READY)
    answers.flush()
    os.dup2(2, 1)  # output of packages must not mix with the output of the program
    with suppress(OSError):
        os.nice(PRIORITY)
    tracker: Any = None
    while True:
        try:
            request = received(sys.stdin.buffer)
        except EOFError:
            return
        try:
            tracker = _done(tracker, request)
            answer = None
        except Exception as error:  # the boundary: a tracker may raise anything
            answer = _failure(error)
        if not _told(answers, answer):
            return


def _done(tracker: Any, request: Any) -> Any:
    """Execute a request and return the tracker: folders of modules, the tracker's constructor, or a method with its argument."""
    if isinstance(request, list):
        sys.path.extend(path for path in request if path not in sys.path)
        return None
    if callable(request):
        return request()
    method, content = request
    getattr(tracker, method)(content)
    return tracker


def _failure(error: Exception) -> tuple[bool, str]:
    """Whether a package is missing, and the first line of what is wrong."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else "no message"
    return (True, first) if isinstance(error, MissingExtra) else (False, f"{type(error).__name__}: {first}")


def _told(answers: IO[bytes], answer: Any) -> bool:
    try:
        send(answers, answer)
    except BrokenPipeError:
        return False
    return True


if __name__ == "__main__":
    main()
