"""Components: frozen, validated settings with a `kind` tag, and a method that does the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, model_validator

from probes.clock import Clock, SeriesKey
from probes.signature import Signature, SignatureError

if TYPE_CHECKING:
    from torch import Generator, Tensor


def _frozen(data: Any) -> Any:
    """The same data with tuples instead of lists."""
    if isinstance(data, list):
        return tuple(_frozen(item) for item in data)
    return {key: _frozen(value) for key, value in data.items()} if isinstance(data, dict) else data


class Component(BaseModel):
    """Settings read from a mapping of a spec with a `kind` tag. Every field has a description; unknown keys are refused.

    A list in YAML is a tuple in a field (`tuple[int, ...]`), since a component never changes. A key that is a keyword of Python
    is a field with an alias (`from_`, alias `from`); a component is therefore dumped by alias.

    A component's module imports neither torch nor numpy at its top, because a spec is checked without them; `begin` imports
    them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    family: ClassVar[str]
    kind: str

    @model_validator(mode="before")
    @classmethod
    def _lists_to_tuples(cls, data: Any) -> Any:
        return _frozen(data)  # strict validation does not accept a list for a tuple, and YAML has no tuples


TransformFn = Callable[["Tensor"], "Tensor"]
"""The function of a transform: from a detached tensor, owned by the model, to a tensor on the same device."""


class Transform(Component):
    """Turns the tensor that a hook saw into the tensor that is stored."""

    family: ClassVar[str] = "transform"

    def out(self, signature: Signature) -> Signature:
        """Predict the signature of the result.

        Args:
            signature: what is known about the input; any part may be unknown.

        Raises:
            SignatureError: the transform cannot take such a value, whatever the unknown parts turn out to be.
        """
        raise NotImplementedError

    def begin(self, signature: Signature) -> TransformFn:
        """Take every decision that the signature allows and return the function that is called for each value.

        Called once for each (dtype, rank) of the values, and only with a signature that `out` takes; sizes may differ
        from call to call.

        Args:
            signature: dtype and rank are known, and the names of the axes if the probe has `dims`; sizes are those of
                the first value.

        Returns:
            A function from a detached tensor, on its own device and owned by the model (never write to it, never keep
            it), to a new tensor on the same device. It may return a view of its input; the caller copies it.
            It draws from no global generator and changes no global state.
        """
        raise NotImplementedError


class StepSamples(NamedTuple):
    """Facts on the samples of a step when it is committed.

    Attributes:
        step: its number.
        first_row: how many samples the microsteps before had.
        rows: how many samples all microsteps have.
        ids: ids of all samples of the step, if the loop gave them.
        logged: what the program has logged in the step, by name: rows of all its samples.
    """

    step: int
    first_row: int
    rows: int
    ids: Sequence[int | str]
    logged: Mapping[str, Tensor]


class Accumulation(Transform):
    """A transform whose results are merged over an epoch; the merged result is stored at the epoch's end, once for each phase.

    The transforms before it in `transforms` get every value, the transforms after it get the merged result.
    """

    def rows_of(self, result: Tensor) -> int:
        """The number of samples in the result of one value, if `placed` needs it; else 0."""
        return 0

    def placed(self, result: Tensor, samples: StepSamples) -> Tensor:
        """A result of the transform once its step is committed, before it is merged; the result itself if samples do not matter.

        Raises:
            ValueError: what is known about the samples does not fit the result.
        """
        return result

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """Merge two results into the result for all values of both.

        Args:
            earlier: a result of the transform, or of `merge`, on the host; not changed.
            later: another.

        Returns:
            A tensor of the same dtype and shape.

        Raises:
            ValueError: the two cannot be merged.
        """
        raise NotImplementedError


CompareFn = Callable[["Tensor", "Tensor"], "Tensor"]
"""The function of a comparison: of a value and a second tensor, both detached, not to be changed, on the same device."""


class TensorComparison(Transform):
    """A transform of two tensors: the value, and the one that `against` of the probe names.

    The transforms before it in `transforms` are applied to both tensors (to a capture of another run they were applied already), those
    after it to the result. `begin` has no use, since it has one tensor.
    """

    def begin(self, signature: Signature) -> TransformFn:
        """Refuse: a comparison takes two tensors.

        Raises:
            SignatureError: always.
        """
        raise SignatureError(f"`{self.kind}` compares two tensors: add `against` to the probe, such as `against: {{step: previous}}`")

    def compare(self, signature: Signature) -> CompareFn:
        """Take every decision that the signature allows and return the function that is called for each pair.

        Args:
            signature: that of the value; the other tensor has the same dtype: floats of two dtypes become the one that holds both.

        Returns:
            A function of the value and the other tensor. It raises ValueError if their sizes do not fit.
        """
        raise NotImplementedError


Number = float | int | bool | str
"""One element of a capture; `nan`, `inf`, `-inf` and complex numbers such as `(1+2j)` are strings, which `float` and `complex` read."""


class Reading(NamedTuple):
    """One small capture of a committed step, as Python numbers.

    Attributes:
        key: its series.
        clock: its place in the run; `global_step` is -1 if it is not known.
        late: whether its step was committed before it arrived, as happens to gradients.
        numbers: its elements in row-major order, by label: the names of the elements if a transform gave them (`mean`), else
            their indices (`0`, `2/1`); the label of a single number is empty.
    """

    key: SeriesKey
    clock: Clock
    late: bool
    numbers: dict[str, Number]


@dataclass(frozen=True)
class SinkContext:
    """Data for a sink when a run starts.

    Attributes:
        rank: rank of the process; the sink of each rank is a separate one.
        files: where to write each file that `Sink.files` declares, in that order. They lie in the run directory, and the name
            has the rank in it on other ranks than 0. A sink writes no other file there.
        name: the name of the spec.
        tags: what is known about the run at its start, to be kept with its metrics: `probes.run_id`, `probes.spec`, `probes.directory`.
        closing: gives what is known when the session is closed: `probes.ledger_head`, for `probes verify --anchor`, and
            `probes.captures_roots`.
        directory: the run directory, absolute; at the end of the run it has manifest, spec, ledger and sealed files. None in memory.
    """

    rank: int
    files: tuple[Path, ...] = ()
    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    closing: Callable[[], Mapping[str, str]] = dict
    directory: Path | None = None


class SinkSession(Protocol):
    """A sink during a run: gets the captures of each committed step, outside of any hook."""

    def step(self, readings: Sequence[Reading]) -> None:
        """Write the readings of one committed step, in the order of their capture, and flush them.

        Raises:
            OSError: they cannot be written.
        """

    def close(self) -> None:
        """End the session; the run is over."""


class Sink(Component):
    """Gets the small captures of every committed step as Python numbers: for people and for trackers."""

    family: ClassVar[str] = "sink"

    def most_elements(self) -> int | None:
        """The largest number of elements of one capture that the sink takes; None for no limit.

        A probe with larger captures is refused before the run, or disables the sink where only the run can tell.
        """
        return None

    def files(self) -> tuple[str, ...]:
        """The names of the files that the sink writes in the run directory, as rank 0 has them.

        Two sinks of a spec cannot declare the same name.
        """
        return ()

    def open(self, context: SinkContext) -> SinkSession:
        """Start a session for a run; lines that an earlier attempt wrote stay.

        Args:
            context: the rank, and the paths of the declared files.

        Raises:
            OSError: the sink cannot be written to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class EditContext:
    """Data for an edit when it begins.

    Attributes:
        signature: dtype, rank and names of the axes of the value; sizes are those of the first value.
        source: the tensor that `from` names, on the host; None if the edit has no `from`.
        given: the other tensors that the program gives, on the host, by name; it may give others between two calls.
        input_of: gives the input of the call at a path, such as `input.attention_mask`; None if there is no call.
    """

    signature: Signature
    source: Tensor | None = None
    given: Mapping[str, Tensor] = field(default_factory=dict)
    input_of: Callable[[str], Tensor] | None = None


EditFn = Callable[["Tensor", "Generator"], tuple["Tensor", dict[str, "Tensor"]]]
"""The function of an edit: from the value and a generator that is seeded by the clock to the new value and the drawn tensors, by name."""


class Edit(Component):
    """Replaces a value of the model by another."""

    family: ClassVar[str] = "edit"
    random: ClassVar[bool] = False  # whether it uses its generator
    draws_alike: ClassVar[bool] = False  # whether a random edit draws the same numbers in every module and phase of a step
    gradients_only: ClassVar[bool] = False

    def given_names(self) -> tuple[str, ...]:
        """The names of the tensors that the program gives, except that of `from`."""
        return ()

    def input_paths(self) -> tuple[str, ...]:
        """The inputs of the call that the edit needs."""
        return ()

    def begin(self, context: EditContext) -> EditFn:
        """Take every decision that the context allows and return the function that is called for each value.

        Returns:
            A function that never writes to its input and returns a tensor of the same shape, dtype and device, in the
            autograd graph of its input if there is one.

        Raises:
            SignatureError: the edit cannot be applied to such a value.
        """
        raise NotImplementedError
