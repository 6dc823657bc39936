"""Runs an example's script, and kills its sealer, or itself, in a step that was asked for: `sabotage.py SCRIPT WHAT CALL`."""

from __future__ import annotations

import importlib.util
import os
import sys
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import Any

from torch.nn import functional


def sealers() -> list[int]:
    """The processes of this one that seal."""
    listed = (int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split())
    return [pid for pid in listed if b"probes.store.seal" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def main(script: str, what: str, call: int) -> None:
    """Train as the script does; the loss of one step is where it happens."""
    spec = importlib.util.spec_from_file_location("train", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    numbers, real = count(1), functional.cross_entropy

    def loss(*args: Any, **kwargs: Any) -> Any:
        if next(numbers) == call:
            victims = sealers() if what == "sealer" else [os.getpid()]
            assert victims
            for victim in victims:
                os.kill(victim, SIGKILL)
        return real(*args, **kwargs)

    functional.cross_entropy = loss
    module.main(["--epochs", "3"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
