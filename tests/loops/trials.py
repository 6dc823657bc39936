"""One script, alone and under `probes run`, and what differs from its truth."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import probes
from tests.loops.compare import captured_rows, difference, disagreements, expected_rows, files, is_run
from tests.loops.truth import Truth
from tests.pages import ROOT
from tests.warm import programs

Ended = CompletedProcess[str]
ADVICE = "`clock: {step: "


class Trials:
    """Runs scripts, each alone once for all its specs.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._alone = cache(self._run_alone)
        self._count = 0

    def alone(self, truth: Truth) -> tuple[Ended, dict[str, Any], dict[str, str]]:
        """How the script ends without probes, every call that was seen in it, and the files it left."""
        return self._alone(truth.text, truth.arguments)

    def misfits(self, truth: Truth) -> list[str]:
        """Where the truth cannot be true of the script, whatever is captured."""
        alone, log, _ = self.alone(truth)
        if alone.returncode != truth.data.get("code", 0):
            return [f"exit code {alone.returncode}", alone.stderr]
        return [] if truth.data.get("refused") else disagreements(truth, log)

    def faults(self, truth: Truth) -> list[str]:
        """What is wrong with the script's run with probes; behind it, if anything is, what was said on stderr."""
        before, log, left = self.alone(truth)
        work = self._folder(truth.text)
        spec, out = work.with_suffix(".yaml"), work.with_suffix(".run")
        spec.write_text(json.dumps(truth.spec(), indent=1))  # JSON is YAML without anchors
        options = [] if truth.data.get("out") == "default" else ["--out", str(out)]
        after = ended(work, "in_process", "run", *options, spec, "train.py", *truth.arguments)
        if not options:
            out = next(iter((work / "runs").glob("*/*")), out)
        wrong = refusals(truth, after) if truth.data.get("refused") else list(faults(truth, before, log, out, after))
        left_after = files(work)
        if left_after != left:
            wrong.append(f"files differ: {sorted({*left.items()} ^ {*left_after.items()})}")
        return [*wrong, after.stderr] if wrong else []

    def _run_alone(self, text: str, arguments: tuple[str, ...]) -> tuple[Ended, dict[str, Any], dict[str, str]]:
        folder = self._folder(text)
        log = folder.with_suffix(".json")
        alone = ended(folder, "observe", log, "train.py", *arguments)
        return alone, json.loads(log.read_text()), files(folder)

    def _folder(self, text: str) -> Path:
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir()
        (folder / "train.py").write_text(text)
        return folder


def ended(folder: Path, module: str, *words: str | Path) -> Ended:
    """How a program ended that a module next to this one makes."""
    about = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "200"}
    return programs.run("-m", f"tests.loops.{module}", *words, cwd=folder, env=about)


def faults(truth: Truth, before: Ended, log: dict[str, Any], out: Path, after: Ended) -> Iterator[str]:
    """What is wrong with a run, a line or a few for each kind."""
    for probe in truth.spec()["probes"]:
        if lines := difference(expected_rows(truth, log, probe), captured_rows(out, probe, truth.target)):
            yield f"{probe}: {lines}"
    if after.returncode != (code := truth.data.get("exit", before.returncode)):
        yield f"exit code {after.returncode}, due {code}"
    if after.stdout != before.stdout:
        yield f"stdout differs:\n{after.stdout}instead of\n{before.stdout}"
    epochs = range(max(len(truth.epochs("train")), len(truth.epochs("eval"))))
    due = {epoch: "incomplete" if epoch in truth.incomplete else "complete" for epoch in epochs}
    state = probes.open(out).state if is_run(out) else {}
    if state != due:
        yield f"epochs are {state}, due {due}"
    yield from (f"not said: {said}" for said in truth.data.get("says", ()) if said not in after.stderr)
    if "table" in truth.data and ADVICE in after.stderr and not any(ADVICE in said for said in truth.data.get("says", ())):
        yield f"advice that nobody needs: {next(line for line in after.stderr.splitlines() if ADVICE in line)}"


def refusals(truth: Truth, after: Ended) -> list[str]:
    """What is wrong with a refusal: its exit code, or a word that would have helped."""
    wrong = [f"not said: {said}" for said in truth.data["refused"] if said not in after.stderr]
    return wrong if after.returncode == 2 else [f"exit code {after.returncode}, due 2", *wrong]
