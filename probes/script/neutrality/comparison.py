"""Whether a program computes the same with probes as without, to the last bit."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from probes.errors import RunError
from probes.script.neutrality.child import NeutralityJob
from probes.script.program import Program
from probes.script.repeated_stdin import RepeatedStdin

TAIL = 4000  # characters of a failed program's stderr that are reported


@dataclass(frozen=True)
class NeutralityVerdict:
    """The result of a comparison.

    Attributes:
        neutral: whether nothing differs.
        steps: optimizer steps of the program.
        backwards: its backwards.
        tensors: parameters and buffers compared in the end.
        difference: the first difference, or empty.
        reproducible: whether the program equals itself without probes; only asked where it differs with them.
        declared: bindings that the plan itself calls not neutral.
    """

    neutral: bool
    steps: int
    backwards: int
    tensors: int
    difference: str = ""
    reproducible: bool = True
    declared: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class NeutralityTrial:
    """Runs a program in separate processes.

    Attributes:
        program: the program.
        spec: the spec as the user named it.
        overrides: `path=value` texts for the spec.
        folder: an empty directory for records and the run.
        allowed: kinds of plug-ins that may be imported.
        stdin: what each run of the program reads.
    """

    program: Program
    spec: str
    overrides: tuple[str, ...]
    folder: Path
    allowed: tuple[str, ...] = ()
    stdin: RepeatedStdin = field(default_factory=RepeatedStdin)

    def verdict(self) -> NeutralityVerdict:
        """Run the program without and with probes, and compare.

        Raises:
            RunError: the program failed, or the spec was not satisfied.
        """
        plain, probed = self.events("plain"), self.events("probed", probed=True)
        found = NeutralityVerdict(
            neutral=True,
            steps=sum(event["event"] == "step" for event in plain),
            backwards=sum(event["event"] == "backward" for event in plain),
            tensors=sum(len(model["state"]) for model in plain[-1]["models"]),
            declared=tuple(self._declared()),
        )
        difference = first_difference(plain, probed)
        if not difference:
            return found
        same = not first_difference(plain, self.events("again"))
        return replace(found, neutral=False, difference=difference, reproducible=same)

    def events(self, name: str, *, probed: bool = False) -> list[dict[str, Any]]:
        """The record of one run of the program by a child process."""
        record = self.folder / f"{name}.jsonl"
        program = self.program
        job = NeutralityJob(str(record), program.name, program.arguments, program.is_module)
        if probed:
            job = replace(job, spec=self.spec, out=str(self.folder / "run"), overrides=self.overrides, allowed=self.allowed)
        job_file = self.folder / f"{name}.json"
        job_file.write_text(job.text(), encoding="utf-8")
        command = [sys.executable, "-m", "probes.script.neutrality.child", str(job_file)]
        code, _, errors = self.stdin.run(command, env={"PYTHONHASHSEED": "0", **os.environ})
        if code:
            raise RunError(f"the script ended with code {code} {'with' if probed else 'without'} probes:\n{errors[-TAIL:]}")
        if not record.exists():
            raise RunError("the script did not import torch, so there is nothing to compare")
        return [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]

    def _declared(self) -> Iterator[str]:
        manifest = json.loads((self.folder / "run" / "run.json").read_text(encoding="utf-8"))
        for binding in manifest["plan"]["bindings"]:
            if not binding["neutral"]:
                yield f"{binding['probe']} on {binding['target']}:{binding['value']}"


def first_difference(plain: Sequence[dict[str, Any]], probed: Sequence[dict[str, Any]]) -> str:
    """The first difference of two records, in words; empty if they are equal."""
    for before, after in zip_longest(plain, probed):
        if before == after:
            continue
        if before is None or after is None or before["event"] != after["event"]:
            return f"{_named(before)} without probes, {_named(after)} with them"
        return f"{_named(before)}: {_parts(before, after)}"
    return ""


def _named(event: dict[str, Any] | None) -> str:
    if event is None:
        return "nothing more"
    if event["event"] == "step":
        return f"optimizer step {event['number']} ({event['optimizer']})"
    return f"backward {event['number']}" if event["event"] == "backward" else "the end"


def _parts(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in before if before[name] != after.get(name)]
    return ", ".join(_models(before, after) if name == "models" else name for name in names)


def _models(before: dict[str, Any], after: dict[str, Any]) -> str:
    for one, other in zip_longest(before["models"], after["models"]):
        if one is None or other is None or one["class"] != other["class"]:
            return "other models"
        if one["hooks"] != other["hooks"]:
            return f"{one['class']} carries {other['hooks']} hooks instead of {one['hooks']}"
        changed = [name for name in one["state"] if one["state"][name] != other["state"].get(name)]
        if changed:
            return f"{len(changed)} of {len(one['state'])} weights and buffers of {one['class']}, `{changed[0]}` first"
    return "models"
