"""What holds for every test, however the tests were started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let programs that tests start hear of signals, which a shell's background job or `nohup` makes all below it ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
