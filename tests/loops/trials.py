"""One script, alone and under `probes run`, and what differs from its truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import probes
from tests.loops.compare import captured_rows, difference, disagreements, expected_rows, files, is_run
from tests.loops.forks import Ended, Forks
from tests.loops.truth import Truth


class Trials:
    """Runs scripts, each alone once for all its specs.

    Args:
        forks: where programs run.
        folder: an empty folder.
    """

    def __init__(self, forks: Forks, folder: Path) -> None:
        self.forks = forks
        self.folder = folder
        self._alone = cache(self._run_alone)
        self._count = 0

    def alone(self, truth: Truth) -> tuple[Ended, dict[str, Any], dict[str, str]]:
        """How the script ends without probes, every call that was seen in it, and the files it left."""
        return self._alone(truth.text, truth.arguments)

    def misfits(self, truth: Truth) -> list[str]:
        """Where the truth cannot be true of the script, whatever is captured."""
        ended, log, _ = self.alone(truth)
        if ended.code != truth.data.get("code", 0):
            return [f"exit code {ended.code}", ended.err]
        return [] if truth.data.get("refused") else disagreements(truth, log)

    def faults(self, truth: Truth) -> list[str]:
        """What is wrong with the script's run with probes; behind it, if anything is, what was said on stderr."""
        before, log, left = self.alone(truth)
        work = self._folder(truth.text)
        spec, out = work.with_suffix(".yaml"), work.with_suffix(".run")
        spec.write_text(json.dumps(truth.spec(), indent=1))  # JSON is YAML without anchors
        options = [] if truth.data.get("out") == "default" else ["--out", str(out)]
        after = self.forks.with_probes(work, "run", *options, str(spec), "train.py", *truth.arguments)
        if not options:
            out = next(iter((work / "runs").glob("*/*")), out)
        wrong = refusals(truth, after) if truth.data.get("refused") else list(faults(truth, before, log, out, after))
        left_after = files(work)
        if left_after != left:
            wrong.append(f"files differ: {sorted({*left.items()} ^ {*left_after.items()})}")
        return [*wrong, after.err] if wrong else []

    def _run_alone(self, text: str, arguments: tuple[str, ...]) -> tuple[Ended, dict[str, Any], dict[str, str]]:
        folder = self._folder(text)
        log = folder.with_suffix(".json")
        ended = self.forks.without_probes(folder, log, "train.py", *arguments)
        return ended, json.loads(log.read_text()), files(folder)

    def _folder(self, text: str) -> Path:
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        (folder / "train.py").write_text(text)
        return folder


def faults(truth: Truth, before: Ended, log: dict[str, Any], out: Path, after: Ended) -> Iterator[str]:
    """What is wrong with a run, a line or a few for each kind."""
    for probe in truth.spec()["probes"]:
        if lines := difference(expected_rows(truth, log, probe), captured_rows(out, probe, truth.target)):
            yield f"{probe}: {lines}"
    if after.code != (code := truth.data.get("exit", before.code)):
        yield f"exit code {after.code}, due {code}"
    if after.out != before.out:
        yield f"stdout differs:\n{after.out}instead of\n{before.out}"
    epochs = range(max(len(truth.epochs("train")), len(truth.epochs("eval"))))
    due = {epoch: "incomplete" if epoch in truth.incomplete else "complete" for epoch in epochs}
    state = probes.open(out).state if is_run(out) else {}
    if state != due:
        yield f"epochs are {state}, due {due}"
    yield from (f"not said: {said}" for said in truth.data.get("says", ()) if said not in after.err)


def refusals(truth: Truth, after: Ended) -> list[str]:
    """What is wrong with a refusal: its exit code, or a word that would have helped."""
    wrong = [f"not said: {said}" for said in truth.data["refused"] if said not in after.err]
    return wrong if after.code == 2 else [f"exit code {after.code}, due 2", *wrong]
