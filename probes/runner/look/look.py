"""Look at the values of one call: the captures of a spec, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from probes.clock import LOSS_SCALE, SeriesKey
from probes.errors import RunError, UsageError
from probes.hooks.capture.model_copies import clean_copies
from probes.hooks.capture.run_state import OutermostCall, RunState
from probes.plan import Plan, resolve
from probes.reader.lazy_part import LazyPart
from probes.reader.selection import Names, Selection
from probes.reader.series_index import SeriesIndex
from probes.reader.series_set import listed_html
from probes.run_directory.attempts import ListedFile
from probes.run_directory.resume import PreviousAttempts
from probes.runner.attached.schedule import Schedule
from probes.runner.engine import Engine
from probes.runner.failures import print_line
from probes.runner.look.memory_files import MemoryFiles, MemorySource
from probes.runner.program_events import phase_of
from probes.runner.run import open_runs
from probes.runner.start import rank
from probes.runner.summary import unmet
from probes.runner.watch.call_watch import CallNumbers, call_watch
from probes.spec import LoadedSpec, Probe, When, load_spec
from probes.tensors import LeafNotFound, follow, leaves
from probes.value_path import split_keys

Loss = str | Callable[[Any], Tensor]


class Look(SeriesIndex):
    """The captures of one call; series are found as in a run that `probes.open` has opened.

    Attributes:
        output: what the model returned.
        loss: the scalar whose backward ran; None without one.
    """

    def __init__(self, source: MemorySource, output: Any, loss: Tensor | None, selection: Selection | None = None) -> None:
        super().__init__(selection or Selection())
        self.output = output
        self.loss = loss
        self._source = source

    def sel(self, *, phase: Names = None, dtype: Names = None) -> Look:
        """The look, restricted to some phases and dtypes."""
        return Look(self._source, self.output, self.loss, self._selection.narrowed(phase=phase, dtype=dtype))

    @cached_property
    def _keys(self) -> dict[SeriesKey, list[LazyPart]]:
        found: dict[SeriesKey, list[LazyPart]] = {}
        for address in self._source.parts:
            if self._selection.has_phase(address.key.phase) and address.key.leaf != LOSS_SCALE:
                entry = ListedFile(0, 0, 1, 0, "memory", True)
                found.setdefault(address.key, []).append(LazyPart(self._source, entry, address))
        return dict(sorted(found.items()))

    @property
    def _scales(self) -> dict[tuple[str, str], list[LazyPart]]:
        return {}

    def __repr__(self) -> str:
        return f"<Look: {len(self._keys)} series>"

    def _repr_html_(self) -> str:
        return listed_html(self.series)


def look(model: Module | Mapping[str, Module], spec: Any, *args: Any, backward: Loss | None = None, **kwargs: Any) -> Look:
    """Call a model once and capture what a spec says, without a run directory.

    The call is due for every probe of the spec: `phases`, `epochs`, `steps`, `microsteps`, `ranks` and `trigger` of a schedule do not
    count here, nor do `sinks` and `rules`; `calls` does. After the call, no hook is left on the model. With `backward` the `.grad` of each
    parameter is afterwards what it was before.

    Args:
        model: the model, in the mode and under the contexts (`no_grad`, `autocast`) of the caller.
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        args: what the model is called with.
        backward: the loss, for gradients: a path in what the model returns, such as `loss` or `0`, `output` for the returned tensor
            itself, or a function from what the model returns to a scalar.
        kwargs: what the model is called with by name.

    Returns:
        The series, and what the model returned.

    Raises:
        SpecError: the spec does not say what a spec may say.
        PlanError: the spec does not fit the model.
        RunError: a probe captured nothing, or a value of an exact path is missing.
        UsageError: `backward` does not lead to a scalar that requires a gradient.
    """
    if not isinstance(model, Module):
        raise UsageError(f"look takes one model, not a {type(model).__name__}; for several models use `probes.attach`")
    return SingleCall(resolve(_due_at_once(load_spec(spec)), model, {}), model).run(args, kwargs, backward)


class SingleCall:
    """One call of a model under the hooks of a plan.

    Args:
        plan: the plan, every probe of which is due.
        model: the model.
    """

    def __init__(self, plan: Plan, model: Module) -> None:
        self.plan = plan
        self.model = model
        self.files = MemoryFiles()
        self._said: list[str] = []
        self.engine = Engine(plan, self.files, PreviousAttempts(), automatic=False, rank=rank())
        self.engine.writer.disk_space.asked = True  # nothing goes to a disk
        self.engine.failures.say = self._said.append  # missing values are raised, or printed, at the end
        self.clock = self.engine.clock
        self._at: OutermostCall | None = None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], backward: Loss | None) -> Look:
        """Call the model, and the backward after it."""
        with self._hooks():
            output = self._call(args, kwargs)
            loss = None if backward is None else scalar_of(output, backward)
            if loss is not None:
                self._differentiate(loss)
        self._check_captured(backward)
        return Look(MemorySource(self.files.ended, self.engine.moment.rank), output, loss)

    @contextmanager
    def _hooks(self) -> Iterator[None]:
        """Hooks are on the model, and the step is open; open runs ignore the calls."""
        engine, item, complete = self.engine, object(), False
        with ExitStack() as stack:
            for run in open_runs():
                stack.enter_context(calls_aside(run.engine.moment))
            engine.live.stand()
            clean_copies.start()
            try:
                engine.hear(self.clock.epoch_begins, 0)
                engine.hear(self.clock.item_begins, item)
                yield
                complete = True
            finally:
                engine.hear(self.clock.item_ends, item, keep=complete)
                engine.hear(self.clock.epoch_ends, complete=complete)
                engine.live.remove()
                clean_copies.stop()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the model; calls of modules within are numbered."""
        call_watch.add(self)
        try:
            return self.model(*args, **kwargs)
        finally:
            call_watch.remove(self)

    def call_enters(self, module: Module) -> CallNumbers | None:
        """The outermost call of the model begins."""
        self._at = self.engine.enter(phase_of(self.model), get_ident(), grad=torch.is_grad_enabled())
        return self._at

    def call_leaves(self, *, raised: bool) -> None:
        """The outermost call returns, or raises."""
        self.engine.leave(get_ident(), raised=raised)

    def ignores(self, module: Module) -> bool:
        """Ignores no module: the first module called is the model."""
        return False

    def _differentiate(self, loss: Tensor) -> None:
        """Run the backward; gradients of parameters are restored, and open runs do not see those of the look."""
        with ExitStack() as stack:
            for run in open_runs():
                stack.enter_context(backward_aside(run.engine.moment, run.engine.schedule))
            self._backward(loss)

    def _backward(self, loss: Tensor) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        kept = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
            # No optimizer follows: the gradient that one would use is that of this backward.
            self.engine.updated({id(parameter) for parameter in parameters}, owned=False)
        finally:
            for parameter, grad in zip(parameters, kept, strict=True):
                parameter.grad = grad

    def _check_captured(self, backward: Loss | None) -> None:
        problems = unmet(self.plan, self.engine.writer.accounts, self.clock.totals)
        if problems:
            text = "\n".join(str(problem) for problem in problems)
            gradients = any(binding.root.startswith("grad") for binding in self.plan.bindings)
            hint = '\n  no backward ran: give `backward`, such as `probes.look(model, spec, x, backward="loss")`'
            raise RunError(text + (hint if gradients and backward is None else ""))
        for line in self._said:
            print_line(line)


def scalar_of(output: Any, backward: Loss) -> Tensor:
    """The loss that a path or a function finds in what a model returned.

    Raises:
        UsageError: there is none, or it has more than one element or no graph.
    """
    if callable(backward):
        found, said = backward(output), "the function `backward`"
    else:
        found, said = _at(output, backward), f"`backward={backward!r}`"
    if not isinstance(found, Tensor) or found.numel() != 1 or not found.requires_grad:
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        graph = " without a graph" if isinstance(found, Tensor) and not found.requires_grad else ""
        raise UsageError(f"{said} gives {what}{graph}; a loss is a tensor with one element that requires a gradient")
    return found


def _at(output: Any, path: str) -> Any:
    """The value at a path of what a model returned; `output` at the front may be left out."""
    try:
        keys = split_keys(path)
        keys = keys[1:] if keys[0] == "output" else keys
        return next(member for _, member in follow(output, tuple(keys), "output"))
    except (LeafNotFound, ValueError, StopIteration) as error:
        known = ", ".join(f"`{leaf}`" for leaf, _ in leaves(output, "output")) or "no tensor"
        raise UsageError(f"`backward={path!r}`: {error or 'there is no such value'}; what the model returned has {known}") from None


def _due_at_once(loaded: LoadedSpec) -> LoadedSpec:
    """The spec with every probe due in the call, without sinks and rules."""
    probes = {name: _due(probe) for name, probe in loaded.spec.probes.items()}
    return replace(loaded, spec=loaded.spec.model_copy(update={"probes": probes, "sinks": {}, "rules": {}}))


def _due(probe: Probe) -> Probe:
    when = When.model_construct(phases=("train", "eval"), calls=probe.when.calls)
    return probe.model_copy(update={"when": when, "sinks": ()})


@contextmanager
def calls_aside(state: RunState) -> Iterator[None]:
    """Exclude what this thread calls in the body from a run, also within an outermost call of it."""
    thread = get_ident()
    around = state.calls.pop(thread, None)
    drawn = dict(around.drawn) if around is not None else {}
    state.aside.add(thread)
    try:
        yield
    finally:
        state.aside.discard(thread)
        if around is not None:
            around.drawn = drawn
            state.calls[thread] = around


@contextmanager
def backward_aside(state: RunState, schedule: Schedule) -> Iterator[None]:
    """Exclude the gradients of a backward in the body from a run: hooks on parameters do not know whose backward runs."""
    due, is_open = schedule.opened, state.open
    state.open = False
    schedule.close()
    try:
        yield
    finally:
        schedule.open(due)
        state.open = is_open
