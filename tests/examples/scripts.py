"""The examples' scripts, run as a person runs them, and loaded to hang hooks on them by hand."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from numpy.typing import NDArray

from tests.warm import programs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def load(name: str, script: str) -> ModuleType:
    """An example's script as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python; its output is shown where it fails."""
    done = programs.run(*words, cwd=cwd, env=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def saved_by_hand(module: str, function: str, cwd: Path) -> Any:
    """What a function of a test module returns when it is run with a file to write, in a process of its own.

    The process of the tests may compute other last bits: another test may have set threads or backends.
    """
    save = f"import sys, torch; sys.path.insert(0, {str(ROOT)!r}); from {module} import {function} as run; from pathlib import Path"
    python("-c", f"{save}; torch.save(run(Path('by_hand.pt')), 'saved.pt')", cwd=cwd)
    return torch.load(cwd / "saved.pt")


def bits(array: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    """What makes two arrays the same to the last bit."""
    return str(array.dtype), array.shape, array.tobytes()
