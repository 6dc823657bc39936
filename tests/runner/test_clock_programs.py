"""Generated loops against a clock that the generator keeps by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.clock.loop_styles import Program

small = st.integers(0, 2)


@dataclass
class Truth:
    """What the generator counts: the place of each call, in order."""

    epoch: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    places: list[tuple[int, str, int, int]] = field(default_factory=list)

    def step(self, phase: str) -> int:
        """Open a step."""
        self.counts[phase] = self.counts.get(phase, -1) + 1
        return self.counts[phase]

    def call(self, phase: str, microstep: int) -> None:
        self.places.append((self.epoch, phase, self.counts[phase], microstep))

    def next_epoch(self) -> None:
        self.epoch += 1
        self.counts.clear()


@dataclass(frozen=True)
class Loop:
    """A training loop over a loader, as people compose it.

    Attributes:
        epochs: passes.
        batches: batches of each.
        accumulate: batches of an optimizer step.
        rest: whether the rest of a pass is stepped too.
        calls: training calls on a batch.
        before: evaluation calls between the pull and the first training call.
        after: evaluation calls after the work on a batch.
        optimizers: how many of them step at once.
        valid: batches of the validation after each pass.
        valid_calls: calls on each of them.
        others: batches of an inner loader that is begun anew when it is empty; 0 for none.
        made_anew: whether the loader is made for each epoch.
        checks: evaluation calls before all.
        skipped: a batch of each pass whose call raises, and that is skipped; -1 for none.
    """

    epochs: int
    batches: int
    accumulate: int
    rest: bool
    calls: int
    before: int
    after: int
    optimizers: int
    valid: int
    valid_calls: int
    others: int
    made_anew: bool
    checks: int


loops = st.builds(
    Loop,
    epochs=st.integers(1, 3),
    batches=st.integers(1, 5),
    accumulate=st.integers(1, 3),
    rest=st.booleans(),
    calls=st.integers(1, 3),
    before=small,
    after=small,
    optimizers=st.integers(1, 2),
    valid=small,
    valid_calls=st.integers(1, 2),
    others=small,
    made_anew=st.booleans(),
    checks=small,
)


def run(loop: Loop, program: Program) -> None:
    """The program itself."""
    for _ in range(loop.checks):
        program.call("eval")
    inner: Iterator[int] = iter(())
    for epoch in range(loop.epochs):
        name = f"train {epoch}" if loop.made_anew else "train"
        for index in program.batches(name, loop.batches):
            if loop.others and next(inner, None) is None:
                inner = program.batches("others", loop.others)
                next(inner)
            for _ in range(loop.before):
                program.call("eval")
            for _ in range(loop.calls):
                program.call()
            if (index + 1) % loop.accumulate == 0 or (loop.rest and index + 1 == loop.batches):
                for _ in range(loop.optimizers):
                    program.update()
            for _ in range(loop.after):
                program.call("eval")
        if loop.made_anew:
            program.hear(program.clock.loader_deleted(name))
        for _ in program.batches("valid", loop.valid, "eval"):
            for _ in range(loop.valid_calls):
                program.call("eval")


def truth(loop: Loop, rule: str) -> list[tuple[int, str, int, int]]:
    """The clock by hand, straight from the loop's own counters."""
    now = Truth()
    for _ in range(loop.checks):
        now.step("eval")
        now.call("eval", 0)
    for epoch in range(loop.epochs):
        microstep, fresh = 0, True
        for index in range(loop.batches):
            for place in range(loop.before):
                if not index and not place and epoch and known_to_train(loop):
                    now.next_epoch()
                now.step("eval")
                now.call("eval", 0)
            for call in range(loop.calls):
                if not index and not call and epoch and not (loop.before and known_to_train(loop)):
                    now.next_epoch()
                if fresh or rule == "forward" or (rule == "batch" and not call):
                    now.step("train")
                    microstep, fresh = 0, False
                now.call("train", microstep)
                microstep += 1
            fresh = fresh or (index + 1) % loop.accumulate == 0
            for _ in range(loop.after):
                now.step("eval")
                now.call("eval", 0)
        for _ in range(loop.valid):
            now.step("eval")
            for call in range(loop.valid_calls):
                now.call("eval", call)
    return now.places


def known_to_train(loop: Loop) -> bool:
    """Whether a pull tells that training goes on, so that an evaluation before the first training call is of the new epoch."""
    stepped = loop.rest or loop.batches >= loop.accumulate
    return not loop.made_anew and stepped


@given(loops, st.sampled_from(["optimizer", "update", "batch", "forward"]))
@settings(max_examples=300)
def test_a_composed_loop_has_the_clock_of_its_counters(loop: Loop, rule: str) -> None:
    program = Program(rule=rule)
    run(loop, program)
    program.end()
    assert program.places == truth(loop, rule)
    assert all(line.split()[-1].isdigit() for line in program.epochs), "every pass came to its end"
    assert not any("dropped" in line for line in program.lines)
    committed = [line.split()[:2] for line in program.steps]
    assert sorted((phase, int(step)) for phase, step in committed) == sorted({(e, p, s): (p, s) for e, p, s, _ in program.places}.values())


@given(loops, st.booleans())
@settings(max_examples=150)
def test_items_and_phases_of_the_loop_override_everything_done_in_them(loop: Loop, around: bool) -> None:
    """`run.steps` and `run.phase` in either nesting, over loaders that are watched too."""
    program, expected = Program(automatic=False), Truth()
    for epoch in range(loop.epochs):
        program.hear(program.clock.epoch_begins(epoch))
        if epoch:
            expected.next_epoch()
        for _ in zip(program.batches("train", loop.batches), program.items(loop.batches), strict=True):
            expected.step("train")
            for call in range(loop.calls):
                program.call()
                expected.call("train", call)
                program.update()
            for _ in range(loop.before):
                program.call("eval")
                expected.step("eval")
                expected.call("eval", 0)
        if around:
            program.hear(program.clock.phase_named("test"))
        for _ in program.items(loop.valid):
            if not around:
                program.hear(program.clock.phase_named("test"))
            expected.step("test")
            for call in range(loop.valid_calls):
                program.call()
                expected.call("test", call)
            if not around:
                program.hear(program.clock.phase_ends())
        if around:
            program.hear(program.clock.phase_ends())
    program.end()
    assert program.places == expected.places
    assert all(line.split()[-1].isdigit() for line in program.epochs)
