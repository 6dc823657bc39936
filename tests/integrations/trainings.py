"""One training twice: under `probes run`, and as it is with a callback in it."""

from __future__ import annotations

import runpy
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import probes
from probes.script.program import Program
from probes.script.progress import Progress
from probes.script.run_request import RunRequest
from probes.script.session import Session
from probes.spec import load_spec


def roots(folder: Path, script: str, spec: dict[str, Any], callback: str) -> tuple[dict[Any, str], dict[Any, str]]:
    """The captures roots of each epoch under `probes run`, and with a callback; CALLBACKS in the script is its list."""
    plain, own = folder / "plain.py", folder / "own.py"
    plain.write_text(script.replace("CALLBACKS", "[]"))
    own.write_text(script.replace("CALLBACKS", f"[{callback}({spec!r}, out={str(folder / 'own')!r})]"))
    before, kept = list(sys.path), sys.modules["__main__"]
    try:
        said = StringIO()
        done = Session(RunRequest(load_spec(spec), str(folder / "script")), Progress(stream=said)).run(Program(str(plain), ()))
        assert done.code == 0, said.getvalue()
        runpy.run_path(str(own), run_name="__main__")
    finally:
        sys.path[:], sys.modules["__main__"] = before, kept
    for name in ("script", "own"):
        assert probes.verify(folder / name).ok
        assert set(probes.open(folder / name).state.values()) == {"complete"}
    return probes.open(folder / "script").captures_roots, probes.open(folder / "own").captures_roots
