"""Which gates are open: one decision per distinct schedule and step."""

from __future__ import annotations

from probes.hooks.capture.run_state import AnyGate, Gate, Within
from probes.spec import When
from probes.spec.when import Range


class Schedule:
    """The gates of a run, one for each distinct `when`.

    Attributes:
        due: whether any schedule wants the step that is open.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.gates: dict[When, Gate] = {}
        self.unions: dict[tuple[int, ...], AnyGate] = {}
        self.due = False
        self._covered: list[tuple[Gate, Range | None]] = []
        self._epoch = -1
        self._phase = ""
        self._wide = False  # whether every gate is open

    def gate(self, when: When) -> Gate:
        """The gate of a schedule."""
        return self.gates.setdefault(when, Gate())

    def union(self, gates: list[Gate]) -> Gate:
        """A gate that is open where one of `gates` is."""
        distinct = list({id(gate): gate for gate in gates}.values())
        if len(distinct) == 1:
            return distinct[0]
        name = tuple(sorted(id(gate) for gate in distinct))
        return self.unions.setdefault(name, AnyGate(distinct))

    def open_step(self, epoch: int, phase: str, step: int) -> None:
        """Open the gates that are due in this step and close the others."""
        if self._phase != phase or self._epoch != epoch:
            self._epoch, self._phase = epoch, phase
            self._covered = [(gate, when.steps) for when, gate in self.gates.items() if when.covers(epoch, phase, self.rank)]
        wide = len(self._covered) == len(self.gates)
        if not wide:
            for gate in self.gates.values():
                gate.due = False
        some = False
        for gate, steps in self._covered:
            gate.due = due = steps is None or steps.includes(step)
            some = some or due
            wide = wide and due
        self.due = some
        if not (wide and self._wide):
            self._settle()
        self._wide = wide

    def wait(self) -> None:
        """Between steps every gate stands open, so that a module called outside the model's entry is noticed."""
        if not self._wide:
            self._set(True)

    def close(self) -> None:
        """Close every gate: outside of any epoch nothing is due."""
        self._set(False)

    def _set(self, due: bool) -> None:
        for gate in self.gates.values():
            gate.due = due
        self._wide = due
        self._settle()

    def _settle(self) -> None:
        for union in self.unions.values():
            union.settle()


def within(when: When) -> Within | None:
    """The decision on (microstep, call) that a schedule leaves to the hook, or None where it leaves none."""
    if when.microsteps is None and when.calls is None:
        return None
    return when.includes_call
