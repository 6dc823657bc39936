"""Which gates are open: one decision per distinct schedule and step."""

from __future__ import annotations

from probes.hooks.moment import AnyGate, Gate, Within
from probes.spec import When


class Schedule:
    """The gates of a run, one for each distinct `when`.

    Attributes:
        due: whether any schedule wants the step that is open.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.gates: dict[When, Gate] = {}
        self.unions: dict[tuple[int, ...], AnyGate] = {}
        self._covered: list[tuple[When, Gate]] = []
        self._covers: tuple[int, str] | None = None
        self.due = False

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
        if self._covers != (epoch, phase):
            self._covers = (epoch, phase)
            self._covered = [(when, gate) for when, gate in self.gates.items() if when.covers(epoch, phase, self.rank)]
        for gate in self.gates.values():
            gate.due = False
        for when, gate in self._covered:
            gate.due = when.includes_step(step)
        self.due = any(gate.due for _, gate in self._covered)
        self._settle()

    def wait(self) -> None:
        """Between steps every gate stands open, so that a module called outside the model's entry is noticed."""
        for gate in self.gates.values():
            gate.due = True
        self._settle()

    def close(self) -> None:
        """Close every gate: outside of any epoch nothing is due."""
        for gate in self.gates.values():
            gate.due = False
        self._settle()

    def _settle(self) -> None:
        for union in self.unions.values():
            union.settle()


def within(when: When) -> Within | None:
    """The decision on (microstep, call) that a schedule leaves to the hook, or None where it leaves none."""
    if when.microsteps is None and when.calls is None:
        return None
    return when.includes_call
