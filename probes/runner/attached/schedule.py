"""Which gates are open: one decision per distinct schedule and step."""

from __future__ import annotations

from probes.hooks.capture.run_state import AnyGate, Gate, Within
from probes.spec import When
from probes.spec.when import Range


class Schedule:
    """The gates of a run, one for each distinct `when`.

    Attributes:
        opened: the gates that are open.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.gates: dict[When, Gate] = {}
        self.unions: dict[tuple[int, ...], AnyGate] = {}
        self._always: frozenset[Gate] = frozenset()
        self._all: frozenset[Gate] = frozenset()
        self._ranges: list[tuple[Gate, Range]] = []
        self._epoch = -1
        self._phase = ""
        self.opened: frozenset[Gate] = frozenset()

    def gate(self, when: When) -> Gate:
        """The gate of a schedule."""
        return self.gates.setdefault(when.schedule, Gate())

    def union(self, gates: list[Gate]) -> Gate:
        """A gate that is open if one of `gates` is."""
        distinct = list({id(gate): gate for gate in gates}.values())
        if len(distinct) == 1:
            return distinct[0]
        name = tuple(sorted(id(gate) for gate in distinct))
        if name not in self.unions:
            self.unions[name] = AnyGate(distinct)
            self.unions[name].settle()  # its members may be open
        return self.unions[name]

    def due(self, epoch: int, phase: str, step: int) -> frozenset[Gate]:
        """The gates that are due in a step."""
        if self._phase != phase or self._epoch != epoch:
            self._epoch, self._phase = epoch, phase
            covered = [(gate, when.steps) for when, gate in self.gates.items() if when.covers(epoch, phase, self.rank)]
            self._always = frozenset(gate for gate, steps in covered if steps is None)
            self._ranges = [(gate, steps) for gate, steps in covered if steps is not None]
        due = self._always
        for gate, steps in self._ranges:
            if steps.includes(step):
                due |= {gate}
        return due

    def open(self, gates: frozenset[Gate]) -> None:
        """Open these gates and close the others; a gate that stays open is never closed in between, as another thread may read it."""
        if gates != self.opened:
            self.opened = gates
            for gate in self.gates.values():
                gate.due = gate in gates
            for union in self.unions.values():
                union.settle()

    def wait(self) -> None:
        """Open every gate, for compiled functions that call the model before the run is informed."""
        if len(self.opened) < len(self.gates):
            if len(self._all) < len(self.gates):
                self._all = frozenset(self.gates.values())
            self.open(self._all)

    def close(self) -> None:
        """Close every gate: outside of epochs nothing is due."""
        self.open(frozenset())


def within(when: When) -> Within | None:
    """The part of a schedule on (microstep, call) that the hook itself decides, or None."""
    if when.microsteps is None and when.calls is None:
        return None
    return when.includes_call
