"""What holds for every test, however the tests were started."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("PROBES_KEEP_SOURCES", "0")  # the sources of all tests, in each of their runs, would fill the disk


def pytest_configure() -> None:
    """Let programs that tests start hear of signals, which a shell's background job or `nohup` makes all below it ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
