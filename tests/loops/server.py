"""A process that has imported torch and probes once, and runs each program in a fork.

`python -m tests.loops.server` reads one JSON request a line and answers with one line. The child becomes the program: the
interpreter ends as it would have ended for a user, with exit handlers and threads.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401  # imported once for all programs
import torch
import torch.utils.data  # noqa: F401

import probes.cli
import probes.commands.run
import probes.runner.attach
import probes.script.attach_to_script
import probes.script.session
from probes.provenance.packages import packages
from tests.loops.in_process import sealing_here
from tests.loops.observe import watched


def serve() -> dict[str, Any]:
    """Answer requests; returns in the child, with its request."""
    packages()  # once for all of them
    gc.collect()
    gc.freeze()  # or the end of each child looks through all of torch, which takes a second
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            return request
        code = ended(child, request["seconds"])
        print(json.dumps({"code": code}), flush=True)
    os._exit(0)


def ended(child: int, seconds: float) -> int:
    """The exit code of a child; its whole session is killed when the time is over (-9)."""
    until = time.monotonic() + seconds
    pause = 0.002
    while time.monotonic() < until:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def become(request: dict[str, Any]) -> None:
    """Be the program that is asked for."""
    os.setsid()
    os.chdir(request["folder"])
    for number, name in enumerate(("/dev/null", request["stdout"], request["stderr"])):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = Path("/dev/null").open()  # noqa: SIM115  # it is this program's
    if request["log"]:
        watched(request["arguments"], request["log"])
    else:
        sys.argv = ["probes", *request["arguments"]]
        with sealing_here():
            probes.cli.main()


if __name__ == "__main__":
    become(serve())
