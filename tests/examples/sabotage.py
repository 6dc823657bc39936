"""Runs an example's script, and kills its sealer, or itself, in a step that was requested: `sabotage.py SCRIPT WHAT CALL`."""

from __future__ import annotations

import importlib.util
import os
import sys
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import Any

from torch.nn import functional

PLACES = {"train": ("cross_entropy", ["--epochs", "3"]), "embed": ("normalize", [])}  # called once a step, and the script's arguments


def sealers() -> list[int]:
    """The processes of this one that seal."""
    listed = (int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split())
    return [pid for pid in listed if b"probes.run_directory.seal" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def main(script: str, what: str, call: int) -> None:
    """Do what the script does; one call of what it calls in every step is where it happens."""
    place, arguments = PLACES[Path(script).stem]
    spec = importlib.util.spec_from_file_location("script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    numbers, real = count(1), getattr(functional, place)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if next(numbers) == call:
            victims = sealers() if what == "sealer" else [os.getpid()]
            assert victims
            for victim in victims:
                os.kill(victim, SIGKILL)
        return real(*args, **kwargs)

    setattr(functional, place, watched)
    module.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
