"""The interface for loops that use their run: epochs, steps and phases."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from probes.errors import Stopped, UsageError
from probes.hooks.capture import compiled
from probes.hooks.capture.tracing import breaks_graph, runs_eagerly
from probes.printable import storable
from probes.runner.engine import Engine
from probes.runner.program_events import ProgramEvents
from probes.runner.program_frames import by_exception, handled
from probes.runner.watch.call_watch import call_watch

T = TypeVar("T")
LARGEST = 999_999_999  # epoch; its number is in the names of files


class RunLoops:
    """Converts calls of a loop into events for the clock.

    Args:
        engine: the inner side of the run.
        events: what the program does without saying so.
    """

    def __init__(self, engine: Engine, events: ProgramEvents) -> None:
        self.engine = engine
        self.events = events

    @property
    def next_epoch(self) -> int:
        """The epoch to continue: 0, or in a run that was resumed the first that is not complete."""
        return self.engine.clock.first_epoch

    @breaks_graph
    def epochs(self, count: int, start: int | None = None, first_step: int = 0) -> Iterator[int]:
        """Iterate over epochs `start` to `count - 1`; each ends when the next begins or the iteration is over.

        Args:
            count: epochs of the whole training.
            start: the first; by default `next_epoch`.
            first_step: number of the first training step of epoch `start`, if the loop continues in its middle; see `epoch`.
        """
        self._check_entered()
        if first_step and start is None:
            raise UsageError(f"`first_step={first_step}` is a step of one epoch: give `start` too, the epoch of the checkpoint")
        first, step = self.next_epoch if start is None else whole(start, "the first epoch"), whole(first_step, "`first_step`")
        for epoch in range(first, whole(count, "the number of epochs")):
            self._tell(self.engine.clock.epoch_begins, epoch, step if epoch == first else 0)
            before = handled()
            try:
                yield epoch
            except GeneratorExit as closing:
                if by_exception(closing, sys._getframe().f_back, before):
                    self._tell(self.engine.clock.epoch_ends, complete=False, reason="exception")
                raise
            self._tell(self.engine.clock.epoch_ends)
            self.raise_pending()

    @contextmanager
    @breaks_graph
    def epoch(self, index: int, first_step: int = 0) -> Iterator[int]:
        """One epoch; an exception in its body, or batches that are left, make it incomplete.

        Args:
            index: its number.
            first_step: number of its first training step, if the loop continues from a checkpoint in its middle: how many training
                steps of it the checkpoint includes. Readers take the steps before from the earlier attempt.
        """
        self._check_entered()
        numbers = whole(index, "the number of an epoch"), whole(first_step, "`first_step`")
        self._tell(self.engine.clock.epoch_begins, *numbers)
        try:
            yield index
        except BaseException as error:  # any end of the loop's body, an interrupt too; raised again
            self._tell(self.engine.clock.epoch_ends, complete=False, reason=reason_of(error))
            raise
        self._tell(self.engine.clock.epoch_ends)
        self.raise_pending()

    @breaks_graph
    def steps(self, batches: Iterable[T], accumulate: int = 1, ids: Callable[[T], Sequence[Any]] | None = None) -> Iterator[T]:
        """Iterate over batches, each a step; with `accumulate=n` a step is n batches.

        Leaving the loop before the last batch makes the epoch incomplete; an exception in its body drops the open step.

        Args:
            batches: what the loop iterates over, such as a DataLoader.
            accumulate: batches that make one step.
            ids: gives the sample ids of a batch; they are stored with the captures.
        """
        self._check_entered()
        clock, loop, item, accumulate = self.engine.clock, object(), object(), whole(accumulate, "`accumulate`", 1)
        known: list[int | str] = []
        self._note(clock.loop_begins, loop)
        last = _last(batches)
        for index, batch in enumerate(batches):
            if index % accumulate == 0:
                before, item, known = item, object(), []
                self._tell(clock.item_begins, item, loop=loop, after=before)
                self.raise_pending()
            if ids is not None:
                known += plain_ids(ids(batch))
                self._note(clock.item_ids, item, known)
            if index == last:
                self._note(clock.loop_gives, loop, last=True)
            handling = handled()
            try:
                yield batch
            except GeneratorExit as closing:
                raised = by_exception(closing, sys._getframe().f_back, handling)
                self._tell(clock.item_ends, item, keep=not raised)
                if raised:
                    self._note(clock.loop_raised, "exception")
                raise
        self._note(clock.loop_ends, loop)
        self._tell(clock.item_ends, item)
        self.raise_pending()

    @contextmanager
    @breaks_graph
    def step(self, ids: Sequence[Any] = ()) -> Iterator[None]:
        """One step; it is committed when its body ends, and dropped when that raises."""
        self._check_entered()
        clock, item = self.engine.clock, object()
        self._tell(clock.item_begins, item, plain_ids(ids))
        try:
            yield
        except BaseException:  # as in `epoch`
            self._tell(clock.item_ends, item, keep=False)
            raise
        self._tell(clock.item_ends, item)
        self.raise_pending()

    @contextmanager
    @breaks_graph
    def phase(self, name: str) -> Iterator[None]:
        """Name the phase of the calls in the body.

        In any phase but `train` a step is a batch of the loader that the body goes over, or else a call of the model; what is open
        is dropped when the body raises. `run.steps` and `run.step` may stand inside or around it.
        """
        self._check_entered()
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of a phase is a text such as `eval`; got {name!r}")
        clock = self.engine.clock
        self._tell(clock.phase_named, str(name))
        try:
            yield
        except BaseException as error:  # as in `epoch`
            self._tell(clock.phase_ends, raised=reason_of(error))
            raise
        self._tell(clock.phase_ends)

    @breaks_graph
    def log(self, **values: Any) -> None:
        """Store values of the loop with the captures of the step, for probes whose `values` name them, such as `loop.loss`.

        A value belongs to the step that is open, or else to the last one; within `run.phase`, to the last step of that phase. In an
        item of `run.steps` it waits for the first call of the model; an item without a call is not a step, and what was logged in it is
        dropped. A value that no probe captures is reported once.

        Args:
            values: by name: numbers, tensors and arrays of at most 65,536 elements, or mappings and lists of such.

        Raises:
            UsageError: no step has begun, or a value is of another type.
        """
        self._check_entered()
        self.engine.log(values)

    @runs_eagerly
    def raise_pending(self) -> None:
        """Raise what went wrong in a hook, if the spec says `on_error: raise` or it is too early to continue without captures."""
        if self.events.halts:
            self.events.halt()
        if self.engine.failures.first is not None:
            self.events.raise_due()

    @runs_eagerly
    def _check_entered(self) -> None:
        """Refuse the loop of a run without hooks on the model, which would capture nothing.

        Raises:
            UsageError: the run was not entered.
        """
        if not self.events.begun:
            raise UsageError(
                "the run was not entered, so no hook is on the model: write `with run:` around the loop, or call `run.start()`"
            )

    @runs_eagerly
    def _tell(self, event: Callable[..., Any], *args: object, **options: object) -> None:
        if compiled.is_expected():
            self.events.collect_compiled()
        call_watch.renew()
        self.engine.hear(event, *args, **options)

    @runs_eagerly
    def _note(self, event: Callable[..., None], *args: object, **options: object) -> None:
        """Tell the clock what nothing follows from; dynamo would compile what a generator calls, if not the generator itself."""
        event(*args, **options)


@runs_eagerly
def whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number of the program as Python's: of NumPy, and of a tensor with one element, as in a checkpoint, too.

    Args:
        value: what the program gave.
        name: its name in the error.
        least: the smallest that is allowed.

    Raises:
        UsageError: it is not a whole number, or not within the bounds.
    """
    try:
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # of a text or a float; of an array or a tensor of several elements
        number = -1
    if not least <= number <= LARGEST:
        raise UsageError(f"{name} is a whole number from {least} to {LARGEST:,}; got {value!r}")
    return number


def reason_of(error: BaseException | None) -> str:
    """The reason why an epoch is not complete; empty if nothing was raised."""
    if error is None:
        return ""
    return f"stopped by {error.by}" if isinstance(error, Stopped) else f"exception: {type(error).__name__}"


@runs_eagerly
def _last(batches: Iterable[object]) -> int:
    """The index of the last batch, if it is known; -1 else. A loader over an iterable dataset would warn when it is asked."""
    dataset = getattr(batches, "dataset", None)
    if not isinstance(batches, Sized) or (dataset is not None and not hasattr(dataset, "__getitem__")):
        return -1
    try:
        return len(batches) - 1
    except (TypeError, NotImplementedError):
        return -1


@runs_eagerly
def plain_ids(ids: Iterable[Any]) -> list[int | str]:
    """Ids as whole numbers and texts.

    Args:
        ids: numbers, texts, a tensor or an array of them; anything else is stored as its `str`.
    """
    listed = ids.tolist() if hasattr(ids, "tolist") else ids
    return [_plain(one) for one in (listed if isinstance(listed, Iterable) else [listed])]


def _plain(one: Any) -> int | str:
    if hasattr(one, "tolist"):  # of one number, in a list
        one = one.tolist()
    return int(one) if isinstance(one, int) and not isinstance(one, bool) else storable(str(one))
