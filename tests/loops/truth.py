"""The captures that a script must have: its truth, written by hand in the docstring of the script.

The docstring is a title, a line of dashes, and YAML:

    captured: Net            # class of the model whose optimizer steps; `Net[1]`: the second instance in the order of first calls
    target: fc               # the module of it that is probed; `fc` by default
    train: [3, [2, 2, 1]]    # an epoch each: how many steps of one microstep, or the microsteps of each step
    eval: [1, 1]
    incomplete: [1]          # epochs that must not be complete
    says: ["`clock: {step: update}`"]           # words that stderr must hold
    code: 3                  # exit code of the script alone; `exit: 1`: of `probes run`, where it is another
    refused: [instance]      # it must be refused with exit code 2 and these words
    spec: {clock: {...}}     # keys of the spec; `gradient_phases: [eval]`: where gradients are due, `gradients: false`: nowhere
    cases: {update: {...}}   # the same script with another spec: each overrides what stands above

A negative number of microsteps is a step that is dropped, since its body raised or was left; it counts as a step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

SCRIPTS = Path(__file__).parent / "scripts"
PHASES = ("train", "eval")


class Slot(NamedTuple):
    """The place of one outermost call, by hand.

    Attributes:
        epoch: epoch number.
        step: step within epoch and phase.
        global_step: the same over all epochs.
        microstep: outermost call within the step.
        kept: whether the step is committed.
    """

    epoch: int
    step: int
    global_step: int
    microstep: int
    kept: bool


@dataclass(frozen=True)
class Truth:
    """One script with one spec, and what must come of it.

    Attributes:
        style: name of the script.
        case: name of the spec; empty for the first.
        title: first line of the script's docstring.
        data: what the docstring says.
        text: the script.
    """

    style: str
    case: str
    title: str
    data: dict[str, Any] = field(hash=False, repr=False)
    text: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.style}-{self.case}" if self.case else self.style

    @property
    def captured(self) -> tuple[str, int] | None:
        """Class of the model, and which instance of it in the order of first calls; None where nothing is captured."""
        return named(self.data["captured"]) if self.data["captured"] else None

    @property
    def others(self) -> list[tuple[str, int]]:
        """Further models that are captured under the same clock."""
        return [named(each) for each in self.data.get("others", ())]

    @property
    def target(self) -> str:
        """Path of the probed module."""
        return str(self.data.get("target", "fc"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The script's arguments."""
        return tuple(map(str, self.data.get("arguments", ())))

    @property
    def incomplete(self) -> set[int]:
        """Epochs that must not be complete."""
        return set(self.data.get("incomplete", ()))

    @property
    def gradients(self) -> bool:
        """Whether anything runs backward."""
        return bool(self.data.get("gradients", True))

    def epochs(self, phase: str) -> list[list[int]]:
        """The microsteps of each step of each epoch."""
        return [[1] * each if isinstance(each, int) else list(each) for each in self.data.get(phase, ())]

    def slots(self, phase: str) -> list[Slot]:
        """The places of all outermost calls of a phase, in order."""
        found, steps_before = [], 0
        for epoch, steps in enumerate(self.epochs(phase)):
            for step, microsteps in enumerate(steps):
                for microstep in range(abs(microsteps)):
                    found.append(Slot(epoch, step, steps_before + step, microstep, microsteps > 0))
            steps_before += len(steps)
        return found

    def spec(self) -> dict[str, Any]:
        """The spec that it is run with."""
        where: dict[str, Any] = {"modules": [self.target]}
        if self.data.get("model"):
            where["model"] = self.data["model"]
        some = {"expect": {"fires": "some"}}
        probes: dict[str, Any] = {
            "values": {**where, "values": ["input", "output"]},
            "sparse": {**where, "hook": "forward", "when": {"steps": {"every": 2}}, **some},
        }
        if self.gradients:
            probes["gradient"] = {**where, "hook": "backward", **some, "when": {"phases": self.data.get("gradient_phases", ["train"])}}
        return {"version": 1, "defaults": {"when": {"phases": list(PHASES)}}, **self.data.get("spec", {}), "probes": probes}


def named(text: str) -> tuple[str, int]:
    """`Net[1]` as a class and a number."""
    name, _, index = text.partition("[")
    return name, int(index.rstrip("]") or 0)


def truths(style: str | None = None) -> Iterator[Truth]:
    """All that is kept by hand, or what is of one script."""
    for path in sorted(SCRIPTS.glob(f"{style or '*'}.py")):
        text = path.read_text()
        said = ast.get_docstring(ast.parse(text))
        if said is None:
            raise AssertionError(f"{path.name} has no docstring")
        title, _, rest = said.partition("\n---\n")
        data = yaml.safe_load(rest)
        cases = data.pop("cases", {})
        yield Truth(path.stem, "", title.strip(), data, text)
        for name, changes in cases.items():
            yield Truth(path.stem, name, title.strip(), {**data, **changes}, text)
