"""What holds for every test, however the tests were started."""

from __future__ import annotations

import os
import random
import signal
import sys

import pytest

SEED = int(os.environ.get("PROBES_TEST_SEED", "0"))
"""What every test's random numbers begin with: the same in each `make test`, another one in each `make torture`."""

os.environ.setdefault("PROBES_KEEP_SOURCES", "0")  # the sources of all tests, in each of their runs, would fill the disk


def pytest_configure() -> None:
    """Let programs that tests start hear of signals, which a shell's background job or `nohup` makes all below it ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_report_header() -> str:
    """Say what seed repeats this run."""
    return f"random numbers: PROBES_TEST_SEED={SEED}"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Begin every test with the same random numbers, in whatever order the tests run."""
    random.seed(SEED)
    for library, seed in (("numpy.random", "seed"), ("torch", "manual_seed")):
        if (module := sys.modules.get(library)) is not None:
            getattr(module, seed)(SEED)
