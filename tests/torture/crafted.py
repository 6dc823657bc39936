"""Files that somebody has made to do harm: each is refused with its own code, and no other path is opened on the way."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py

from probes.proof.untrusted import verify_untrusted
from tests.capture_file.test_hdf5_read import HOSTILE
from tests.journal import handmade
from tests.torture.nursery import ROOT
from tests.torture.report import Effort, Row

OPENED = re.compile(r'open(?:at2?)?\((?:AT_FDCWD, )?"([^"]+)"')
PROGRAM = """
import json, sys
from pathlib import Path
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from probes.errors import FileRefused
from tests.capture_file.test_hdf5_read import read_everything
codes = {}
for path in sorted(Path(sys.argv[1]).glob("*/epoch-0000.h5")):
    del opened[:]
    try:
        read_everything(path)
        codes[path.parent.name] = ["accepted", []]
    except FileRefused as refused:
        codes[path.parent.name] = [refused.code, [one for one in opened if sys.argv[1] in one and one != str(path)]]
print(json.dumps(codes))
"""


def rows(effort: Effort) -> Iterator[Row]:
    """One row."""
    folder = effort.folder / "crafted"
    tricks = effort.some(sorted(HOSTILE), "crafted", 3)
    with effort.row("crafted files, each with its own trick") as row:
        for index, trick in enumerate(tricks):
            _craft(folder / f"{index:03d}", trick)
        codes, strangers, traced = _read(folder)
        for index, trick in enumerate(tricks):
            code, wanted = codes[f"{index:03d}"], HOSTILE[trick][0]
            verdict = verify_untrusted(folder / f"{index:03d}" / "epoch-0000.h5")
            row.trials += 1
            row.count.wrong += code == "accepted"
            row.count.problems += [] if code == wanted else [f"{trick}: {code} instead of {wanted}"]
            row.count.problems += [f"{trick}: verify --untrusted accepts it"] if verdict.ok else []
        row.count.problems += [f"opened {stranger}" for stranger in strangers]
        row.note = f"{len({HOSTILE[trick][0] for trick in tricks})} codes, no other path opened ({traced})"
        shutil.rmtree(folder)
    yield row


def _craft(folder: Path, trick: str) -> None:
    folder.mkdir(parents=True)
    path = handmade.write(folder / "epoch-0000.h5")
    with h5py.File(path, "r+") as file:
        HOSTILE[trick][1](file, folder)


def _read(folder: Path) -> tuple[dict[str, str], list[str], str]:
    """The code each file was refused with, and every other path below the folder that was opened meanwhile."""
    program = [sys.executable, "-c", PROGRAM, str(folder)]
    log = folder.with_suffix(".strace")
    tracing = shutil.which("strace") is not None
    tracer = ["strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", str(log)] if tracing else []
    done = subprocess.run([*tracer, *program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    said = json.loads(done.stdout)
    strangers = [path for _, opened in said.values() for path in opened]
    if tracing:
        paths = OPENED.findall(log.read_text())
        strangers += [
            path for path in paths if path.startswith(str(folder)) and not path.endswith("epoch-0000.h5") and Path(path).is_file()
        ]
        log.unlink()
    return {name: code for name, (code, _) in said.items()}, strangers, "strace" if tracing else "audit hook"
