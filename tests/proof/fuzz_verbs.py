"""Whole runs of strangers: one file of a good run is changed, and a verb reads the run, in this process."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from probes.cli import cli
from probes.printable import invisible
from probes.proof.verify import verify
from probes.run_directory.launch.launch_file import LaunchRecord, launch_digest, write_launch
from tests.proof.runs import captures, manifest, replaced, small, write_run

BUG = 4
ALLOWED = "\n\t"
VERBS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "RUN"),
    "verify a file": ("verify", "RUN/epoch-0000.h5"),
    "verify anchored": ("verify", "RUN", "--anchor", "RUN.anchor"),
    "verify as JSON": ("verify", "RUN", "--json", "--sha256"),
    "verify with a page": ("verify", "RUN", "--report", "OUT/proof.html"),
    "verify with a statement": ("verify", "RUN", "--in-toto"),
    "anchor": ("anchor", "RUN"),
    "ls": ("ls", "RUN"),
    "ls attempts": ("ls", "RUN", "--attempts", "--json"),
    "ls runs": ("ls", "RUNS"),
    "show": ("show", "RUN", "acts/*", "--limit", "3"),
    "diff": ("diff", "RUN", "GOOD"),
    "diff the other way": ("diff", "GOOD", "RUN", "--json", "--markdown", "OUT/diff.md"),
    "recover": ("recover", "RUN"),
    "export": ("export", "RUN", "acts/*", "--out", "OUT/a.jsonl"),
    "export the manifest": ("export", "RUN", "--manifest"),
    "report": ("report", "RUN", "--out", "OUT/report.html"),
    "replay, which asks": ("replay", "RUN", "--out", "OUT/again"),
    "check": ("check", "RUN/spec.yaml"),
    "fmt": ("fmt", "RUN/spec.yaml"),
}


class Room(NamedTuple):
    """Where runs are changed and read.

    Attributes:
        good: runs that nobody changed, by name.
        folder: the changed run, what is written about it, and nothing else.
    """

    good: dict[str, Path]
    folder: Path

    @property
    def run(self) -> Path:
        """The changed run."""
        return self.folder / "runs" / "a"


def room(folder: Path) -> Room:
    """Make good runs: one with a recorded script, one with a journal left, and one of two ranks."""
    script = folder / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    whole, one, two = (folder / name for name in ("whole", "one", "two"))
    code = manifest().code.model_copy(update={"script": "train.py", "automatic": True, "directory": str(folder), "sha256": "0" * 64})
    origin = replaced(manifest(), code=code)
    write_run(whole, epochs=1, source=small, origin=origin)
    write_run(one, epochs=2, source=small, gaps=True, origin=origin)
    write_run(one, epochs=3, first=2, source=small, origin=origin, seals=False)
    owner = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": "2026-01-01T00:00:00Z",
        "proof": "lock",
        "task": "write",
        "files": [],
    }
    (one / "claim.json").write_text(json.dumps(owner), encoding="utf-8")
    started = LaunchRecord(
        run_id="r", attempt=1, world=2, next_epoch=0, launcher="torchrun", job="j", restart=0, agent="1", token="t", started="2026"
    )
    two.mkdir()
    write_launch(two, started)
    for rank in range(2):
        write_run(two, epochs=1, source=captures, rank=rank, origin=replaced(manifest(), launch=launch_digest(two, 1)))
    (two / "end.rank-0001.json").write_text('{"rank":1}\n', encoding="utf-8")
    return Room({"whole": whole, "one": one, "two": two}, folder / "changed")


class Case(NamedTuple):
    """One call of a verb on a changed run.

    Attributes:
        verb: of `VERBS`.
        of: name of the good run.
        file: which of its files is changed.
    """

    verb: str
    of: str
    file: str


def call(where: Room, chance: random.Random, changed: Callable[[bytes, random.Random], bytes]) -> list[str]:
    """Change one file of a run, and let one verb read the run.

    Returns:
        What is wrong with how it ended: an error that is none of ours, or characters that a terminal obeys.
    """
    of = chance.choice(sorted(where.good))
    case = Case(chance.choice(sorted(VERBS)), of, chance.choice(sorted(path.name for path in where.good[of].iterdir())))
    shutil.rmtree(where.folder, ignore_errors=True)
    shutil.copytree(where.good[of], where.run)
    (where.folder / "out").mkdir()
    anchor = where.folder / "a.anchor"
    anchor.write_text(json.dumps({"format": "anchor.v1", "run_id": "r", "head": "0" * 64, "files": 1}), encoding="utf-8")
    place = where.run / case.file if "anchored" not in case.verb or chance.random() < 0.5 else anchor
    place.write_bytes(changed(place.read_bytes(), chance))
    words = [_placed(word, where, where.good[of]) for word in VERBS[case.verb]]
    done = CliRunner().invoke(cli, words)
    said = [f"{case}: exit code {done.exit_code}: {done.output[-300:]!r}"] if done.exit_code == BUG else []
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        said += [f"{case}: {type(done.exception).__name__}: {done.exception}"]
    obeyed = sorted({character for character in done.output if character not in ALLOWED and invisible(character) is not None})
    return said + [f"{case}: prints {obeyed}"] * bool(obeyed)


def _placed(word: str, where: Room, good: Path) -> str:
    places = {"RUN.anchor": where.folder / "a.anchor", "RUNS": where.run.parent, "GOOD": good}
    if word in places:
        return str(places[word])
    return word.replace("RUN/", f"{where.run}/").replace("OUT/", f"{where.folder}/out/") if word != "RUN" else str(where.run)


def is_sound(where: Room) -> bool:
    """Whether the good runs verify but for the journal that is left, so that what changes is the change."""
    return all({one.code for one in verify(run).findings if not one.note} <= {"unsealed"} for run in where.good.values())
