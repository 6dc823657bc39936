"""Which gates are open: one decision per distinct schedule and step."""

from __future__ import annotations

from probes.hooks.capture.run_state import AnyGate, Gate, Within
from probes.spec import When
from probes.spec.when import Range


class Schedule:
    """The gates of a run, one for each distinct `when`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.gates: dict[When, Gate] = {}
        self.unions: dict[tuple[int, ...], AnyGate] = {}
        self._covered: list[tuple[Gate, Range | None]] = []
        self._epoch = -1
        self._phase = ""
        self._open: frozenset[Gate] = frozenset()

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

    def due(self, epoch: int, phase: str, step: int) -> frozenset[Gate]:
        """The gates that want a step."""
        if self._phase != phase or self._epoch != epoch:
            self._epoch, self._phase = epoch, phase
            self._covered = [(gate, when.steps) for when, gate in self.gates.items() if when.covers(epoch, phase, self.rank)]
        return frozenset(gate for gate, steps in self._covered if steps is None or steps.includes(step))

    def open(self, gates: frozenset[Gate]) -> None:
        """Open these gates, and close the others; one that stays open is never closed in between, as another thread may ask it."""
        if gates != self._open:
            self._open = gates
            for gate in self.gates.values():
                gate.due = gate in gates
            self._settle()

    def wait(self) -> None:
        """Open every gate between steps, for compiled functions that call the model before we hear of it."""
        self.open(self._all)

    def close(self) -> None:
        """Close every gate: outside of any epoch nothing is due."""
        self.open(frozenset())

    @property
    def _all(self) -> frozenset[Gate]:
        return frozenset(self.gates.values())

    def _settle(self) -> None:
        for union in self.unions.values():
            union.settle()


def within(when: When) -> Within | None:
    """The decision on (microstep, call) that a schedule leaves to the hook, or None where it leaves none."""
    if when.microsteps is None and when.calls is None:
        return None
    return when.includes_call
