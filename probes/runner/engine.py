"""Carries out the answers of the clock: opens and closes epochs, commits steps, and updates the state that hooks read."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch.optim import Optimizer

from probes.errors import ProbesError, RunError
from probes.hooks.capture import compiled
from probes.hooks.capture.accumulator import LastClock
from probes.hooks.capture.run_state import Gate, OutermostCall, RunState, StepState
from probes.hooks.capture.signal_errors import from_signal_handler
from probes.hooks.capture.tracing import undisturbed
from probes.plan import Plan
from probes.plan.drift import added_text
from probes.printable import error_text
from probes.run_directory.resume import PreviousAttempts
from probes.runner.attached.attached_hooks import Live
from probes.runner.attached.given_tensors import GivenTensors
from probes.runner.attached.schedule import Schedule
from probes.runner.clock.answers import Answer, Answers, EpochEnded, EpochOpened, StepEnded, StepOpened, StepPaused, StepResumed
from probes.runner.clock.run_clock import RunClock
from probes.runner.epoch_writer import EpochFiles, EpochWriter
from probes.runner.failures import Failures
from probes.runner.watch.loop_values import LoopValues

NO_MODULES: frozenset[int] = frozenset()
Observer = Callable[[Answer], None]
P = ParamSpec("P")
R = TypeVar("R")


def _guarded(event: Callable[Concatenate[Engine, P], R]) -> Callable[Concatenate[Engine, P], R | None]:
    """Process one event at a time; a bug in this code ends the captures, and not the program."""

    @wraps(event)
    def guarded(engine: Engine, /, *args: P.args, **options: P.kwargs) -> R | None:
        with engine._lock:
            if engine._over:
                return None
            try:
                return undisturbed(event)(engine, *args, **options)
            except Exception as error:  # a bug here must not end the training
                engine._failed(error)
                return None

    return guarded


class Engine:
    """The inner side of a run: passes events to the clock, and applies its answers to hooks and files.

    Events may come from several threads; one at a time is dealt with.

    Args:
        plan: the bindings.
        recording: the files.
        past: earlier attempts of the run.
        automatic: whether epochs follow the loaders, as around a script.
        rank: rank of this process.

    Attributes:
        clock: what the events go to.
        moment: what the hooks see.
        observers: called with every answer once it was carried out.
        epoch_listeners: called when an epoch has opened.
        captured_before: the probes that captured something in earlier attempts.
        collect: opens the step of what a compiled function has left.
        forked: whether this process is a fork of the one that captures, and its program was not told.
    """

    def __init__(self, plan: Plan, recording: EpochFiles, past: PreviousAttempts, *, automatic: bool, rank: int) -> None:
        rule = plan.loaded.spec.clock
        self.plan = plan
        self.clock = RunClock(rule.step, rule.epoch_steps, automatic)
        self.clock.resume(past.next_epoch, past.steps)
        self.captured_before = past.captured
        self.moment = RunState(rank)
        self.moment.samples = self.clock.steps.ids_of
        self.moment.within = self.within
        self.schedule = Schedule(rank)
        self.failures = Failures(plan, self.moment)
        self.live = Live(plan, self.moment, self.schedule, self.failures)
        self.writer = EpochWriter(plan, recording, self.moment, self.live, self.failures)
        self._call_kind = self.live.call_kind
        self.logged = LoopValues(self.live, self.moment, self.clock, self.failures)
        self.observers: list[Observer] = []
        self.epoch_listeners: list[Callable[[], None]] = []
        self.collect: Callable[[], None] | None = None
        self._open: dict[tuple[str, int], list[Any]] = {}  # the state of each open step, and its microstep
        self._left: dict[int, OutermostCall] = {}  # the outermost call that each thread has left last, while its step may be open
        self._overlaps = False
        self._over = False
        self.forked = False
        self._lock = threading.RLock()
        self._done = {
            EpochOpened: self._open_epoch,
            EpochEnded: self._end_epoch,
            StepOpened: self._open_step,
            StepPaused: self._pause_step,
            StepResumed: self._resume_step,
            StepEnded: self._end_step,
        }

    # Events

    # These three come in every step: each has the guard's body in place of the decorator, which costs 0.7 us.

    def hear(self, event: Callable[..., Answers], /, *args: object, **options: object) -> None:
        """Pass an event to the clock, and carry out its answers.

        Args:
            event: a method of the clock.
            args: what it takes.
            options: what it takes by name.
        """
        with self._lock:
            if self._over:
                self._say_forked()
                return
            try:
                answers = event(*args, **options)
                if answers:
                    self._carry_out(answers)
            except Exception as error:  # as in `_guarded`
                self._failed(error)

    def enter(self, phase: str, thread: int, *, grad: bool) -> OutermostCall | None:
        """An outermost call enters; None outside any epoch."""
        with self._lock:
            if self._over:
                return None
            try:
                return self._enter(phase, thread, grad)
            except Exception as error:  # as in `_guarded`
                self._failed(error)
                return None

    def _enter(self, phase: str, thread: int, grad: bool) -> OutermostCall | None:
        answers = self.clock.call_enters(phase, thread, grad=grad)
        if answers:
            self._carry_out(answers)
        called = self.clock.calls.get(thread)
        if called is None:
            return None
        position, moment = called[1], self.moment
        opened = self._open[position.phase, position.step]
        state = opened[0]
        opened[1] = moment.microstep = position.microstep
        at = moment.calls[thread] = self._call_kind(*position, state, self.live.counted if state.due else NO_MODULES)
        if self._overlaps or len(moment.calls) > 1:
            self._settle_overlap()
        if self.writer.surroundings.waiting:
            undisturbed(self.writer.surroundings.first_step)()
        if not position.microstep:
            for tap in self.live.data:
                tap.on_data()
        return at

    @_guarded
    def look(self, phase: str, thread: int) -> OutermostCall | None:
        """An uncounted call enters in a step of the loop; captures in it have microstep -1."""
        step = self.clock.steps.innermost()
        if self.clock.epoch is None or step is None:
            return None
        phase = step.phase or phase
        index = step.index if step.index >= 0 else self.clock.counts[phase]
        counted = self.live.counted if self.moment.opened.due else frozenset()
        at = self.moment.calls[thread] = OutermostCall(self.clock.epoch, phase, index, -1, self.moment.opened, counted)
        return at

    @_guarded
    def join(self, phase: str, thread: int) -> OutermostCall | None:
        """A part without parameters is called by itself, such as an activation: it belongs to the outermost call before it.

        Returns:
            That call; None if its step is over or of another phase, or the next training call begins another step.
        """
        moment, at = self.moment, self._left.get(thread)
        phase = self.clock.phases[-1] if self.clock.phases else phase
        if not moment.open or at is None or at.opened is not moment.opened or at.phase != phase:
            return None
        if phase == "train" and self.clock.ahead() is not None:
            return None
        moment.calls[thread] = at
        if self._overlaps or len(moment.calls) > 1:
            self._settle_overlap()
        return at

    def leave(self, thread: int, *, raised: bool) -> None:
        """An outermost call returns, or raises."""
        with self._lock:
            if not self._over:
                try:
                    self._leave(thread, raised)
                except Exception as error:  # as in `_guarded`
                    self._failed(error)

    def _leave(self, thread: int, raised: bool) -> None:
        at = self.moment.calls.pop(thread, None)
        if at is not None:
            at.over()
            self._left[thread] = at
            if not raised:  # store the values that the call has left
                if self.live.late:
                    self.live.bind_late()
                if compiled.in_use():
                    self.live.pick_up(at)
        answers = self.clock.call_leaves(thread, raised=raised)
        if answers:
            self._carry_out(answers)
        if self._overlaps:
            self._settle_overlap()

    @_guarded
    def updating(self, optimizer: Optimizer, frame: FrameType) -> None:
        """An optimizer begins a step; if its closure calls the model, that may open the next step of the run.

        Args:
            optimizer: the optimizer.
            frame: what calls the hooks and runs the step.
        """
        due = self.moment.opened.due if self.moment.open else frozenset()
        ahead = self.clock.ahead()
        if ahead is not None:
            epoch = self.clock.next_epoch if self.clock.epoch is None else self.clock.epoch
            due |= self.schedule.due(epoch, *ahead)
        if self.live.optimized is not None:
            self.live.optimized.begin(optimizer, due, frame)

    @_guarded
    def updated(self, held: set[int], optimizer: Optimizer | None = None, *, owned: bool, skipped: bool = False) -> None:
        """An optimizer has stepped, or its step was skipped.

        Args:
            held: ids of its parameters.
            optimizer: the optimizer, if its step was not skipped.
            owned: whether one of them is of the clock's model.
            skipped: whether a GradScaler has skipped the step.
        """
        self.moment.opened.differentiated |= owned
        if self.moment.open and not skipped:
            for tap in self.live.finals:
                if id(tap.tensor) in held:
                    tap.on_final()
        if optimizer is not None and self.live.optimized is not None:
            self.live.optimized.end(optimizer, held)
        if owned:
            self._carry_out(self.clock.optimizer_stepped(skipped=skipped))

    @_guarded
    def updated_within(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped within a step of another one, which is not over: this is no event of its own."""
        if self.live.optimized is not None:
            self.live.optimized.end(optimizer, {id(parameter) for group in optimizer.param_groups for parameter in group["params"]})

    @_guarded
    def tell(self, part: Callable[P, None], /, *args: P.args, **options: P.kwargs) -> None:
        """Pass an event to a part of the run that not every spec asks for, such as the loss scales."""
        part(*args, **options)

    @_guarded
    def log(self, values: Mapping[str, Any], phase: str = "") -> None:
        """The program logs values of its loop, perhaps of a phase that it does not name."""
        self.logged.log(values, phase)

    @_guarded
    def set_given(self, values: Mapping[str, Any]) -> None:
        """The program gives other tensors to edits, from the open step on, or from the next one."""
        moment, counts = self.moment, self.clock.counts
        epoch = self.clock.next_epoch if self.clock.epoch is None else self.clock.epoch
        phase, step = (moment.phase, moment.step) if moment.open else ("train", counts["train"])
        given = self.live.given or GivenTensors(())  # which refuses any
        given.set(values, {"epoch": epoch, "phase": phase, "step": step})

    @_guarded
    def follow_model(self) -> None:
        """Modules or parameters of the model were replaced since the last call."""
        self.logged.parameters_changed()
        known = {name: len(paths) for name, paths in self.live.added.items()}
        self.live.follow_model(self.clock.epoch if self.moment.writer is not None else None)
        for name, paths in self.live.added.items():
            if len(paths) > known.get(name, 0):
                self.failures.say(f"probe `{name}`: {added_text(list(paths)[known.get(name, 0) :])}")

    @contextmanager
    def last_event(self) -> Iterator[None]:
        """Ignore every event after the body: another thread may be in a call while the run ends."""
        with self._lock:
            try:
                yield
            finally:
                self._over = True

    def _failed(self, error: Exception) -> None:
        """Raise an error of the run again; any other is a bug in this code."""
        if isinstance(error, ProbesError):
            raise error
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Capture nothing any more after a bug in this code; committed captures stay, and the program continues."""
        if from_signal_handler(error):
            raise error
        self._over = True
        text = f"internal error, nothing more is captured: {type(error).__name__}: {error_text(error)}"
        self.failures.say(f"{text}\n{''.join(traceback.format_exception(error))}please report it; the program continues without captures")
        self.failures.stop(RunError(text))
        with suppress(Exception):
            self.schedule.close()
            self.live.rest()
        if self.clock.epoch is not None:
            with suppress(Exception):
                self.writer.close(EpochEnded(self.clock.epoch, complete=False, reason="internal error", steps=dict(self.clock.counts)))

    # Answers

    def _carry_out(self, answers: Answers) -> None:
        for answer in answers:
            work = self._done.get(type(answer))
            if work is not None:
                work(answer)  # type: ignore[operator]  # each takes the kind of answer that it stands under
            for observer in self.observers:
                observer(answer)

    def _open_epoch(self, opened: EpochOpened) -> None:
        self.moment.epoch = opened.epoch
        self.logged.parameters_changed()
        undisturbed(self.writer.open)(opened)
        self.schedule.wait()
        self._rest()
        for listener in self.epoch_listeners:
            listener()

    def _end_epoch(self, ended: EpochEnded) -> None:
        self._rest()
        self.schedule.close()
        undisturbed(self.writer.close)(ended)

    def _open_step(self, opened: StepOpened) -> None:
        self.moment.step_number += 1
        due = self.schedule.due(self.moment.epoch, opened.phase, opened.step)
        state = StepState(due)
        self._open[opened.phase, opened.step] = [state, -1]
        self._go_on(opened.phase, opened.step, state, -1)
        if self.logged.held:
            undisturbed(self.logged.step_opens)()

    def _go_on(self, phase: str, step: int, state: StepState, microstep: int) -> None:
        """Make a step the one that the hooks see."""
        moment = self.moment
        moment.phase, moment.step, moment.microstep, moment.opened, moment.open = phase, step, microstep, state, True
        self._open_gates(state.due)

    def _open_gates(self, due: frozenset[Gate]) -> None:
        """Open the gates of a step, and of other calls that run at the same time."""
        for at in self.moment.calls.values():
            due |= at.opened.due
        if due != self.schedule.opened:
            self.schedule.open(due)
        if self.live.due_hooks:
            self.live.follow()

    def _settle_overlap(self) -> None:
        """Let each call use the gates of its own step while calls of several threads overlap."""
        calls = self.moment.calls
        if len(calls) > 1:
            self._overlaps = True
            several = len({at.opened for at in calls.values()}) > 1
            for at in calls.values():
                at.due = at.opened.due
                at.opened.overlapped |= several  # the step may end when no call is running any more
        elif self._overlaps and not calls:
            self._overlaps = False
        if self._overlaps or len(calls) > 1:
            self._open_gates(self.moment.opened.due if self.moment.open else frozenset())

    @contextmanager
    def within(self, state: StepState) -> Iterator[None]:
        """Store what comes in the body with the captures of a paused step, and not with those of the step that runs within it."""
        with self._lock:
            place = next((place for place, (one, _) in self._open.items() if one is state), None)
            if self._over or place is None or not self.moment.open:
                yield
                return
            here = self.moment.phase, self.moment.step
            self.writer.pause(StepPaused(*here))
            self.writer.resume(StepResumed(*place))
            try:
                yield
            finally:
                self.writer.pause(StepPaused(*place))
                self.writer.resume(StepResumed(*here))

    def _pause_step(self, paused: StepPaused) -> None:
        self.writer.pause(paused)
        self._open[paused.phase, paused.step][0].paused = True

    def _resume_step(self, resumed: StepResumed) -> None:
        self.writer.resume(resumed)
        self._open[resumed.phase, resumed.step][0].paused = False
        self._go_on(resumed.phase, resumed.step, *self._open[resumed.phase, resumed.step])

    def _end_step(self, ended: StepEnded) -> None:
        state, _ = self._open.pop((ended.phase, ended.step))
        undisturbed(self.writer.end_step)(ended, state, nested=bool(self._open), overlaps=self._overlaps)
        state.over, state.dropped = True, not ended.keep
        if ended.keep and self.logged.taps:
            self.logged.step_ended(LastClock(self.moment.epoch, ended.phase, ended.step, -1, state))
        if not self._open:
            self._left.clear()
            self._rest()

    def _rest(self) -> None:
        """The state between steps; the gates are open if a compiled function may call the model before the run is informed."""
        self.moment.open = False
        self.moment.microstep = -1
        if compiled.is_expected():
            self.schedule.wait()
            self.live.stay()
            self.moment.collect = self.collect

    def _say_forked(self) -> None:
        """Say once that a forked process captures nothing, if it uses the run, as a daemon does and a worker of a DataLoader does not."""
        if self.forked:
            self.forked = False
            self.failures.say("this process is a fork of the one that captures, and captures nothing: call `probes.attach` after the fork")

    def go_inert(self) -> None:
        """Stop capturing: no event has an effect any more, also in a forked process, where the lock's owner may not exist."""
        self._over = True
        self._lock = threading.RLock()
        self.schedule.close()
        self.failures.stopped = self.failures.stopped or "the run was given up"  # do not report gradients that still come
        self.moment.writer = None
        self.writer.recording.let_go()
        self._done = {}
        self.observers.clear()
