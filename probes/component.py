"""What a component is: a frozen, validated record with a `kind` tag that carries its own work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, model_validator

from probes.clock import Clock, SeriesKey
from probes.signature import Signature

if TYPE_CHECKING:
    from torch import Generator, Tensor


def _frozen(data: Any) -> Any:
    """The same data with tuples in place of lists."""
    if isinstance(data, list):
        return tuple(_frozen(item) for item in data)
    return {key: _frozen(value) for key, value in data.items()} if isinstance(data, dict) else data


class Component(BaseModel):
    """A record read from a spec under a `kind` tag. Every field has a description; unknown keys are refused.

    A list in YAML is a tuple in a field (`tuple[int, ...]`), since a component never changes. A key that is a word of Python
    is a field with an alias (`from_`, alias `from`); a component is therefore dumped by alias.

    A component's module imports neither torch nor numpy at its top: a spec is checked without them. The work imports
    them where it begins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    family: ClassVar[str]
    kind: str

    @model_validator(mode="before")
    @classmethod
    def _lists_to_tuples(cls, data: Any) -> Any:
        return _frozen(data)  # strict validation takes no list for a tuple, and YAML has no tuples


TransformFn = Callable[["Tensor"], "Tensor"]


class Transform(Component):
    """Turns the tensor that a hook saw into the tensor that is stored."""

    family: ClassVar[str] = "transform"

    def out(self, signature: Signature) -> Signature:
        """The signature of the result, as far as that of the input tells it.

        Args:
            signature: what is known of the input; any part may be unknown.

        Raises:
            SignatureError: the transform cannot take such a value, whatever the unknown parts turn out to be.
        """
        raise NotImplementedError

    def begin(self, signature: Signature) -> TransformFn:
        """Take every decision that the signature allows and return the work.

        Called once for each (dtype, rank) a value shows; sizes may differ from call to call.

        Args:
            signature: dtype, rank and names of the axes are known; sizes are those of the first value.

        Returns:
            A callable from a detached tensor, on its own device and owned by the model (never write to it, never keep
            it), to a new tensor on the same device. It may return a view of its input; the caller copies it.
            It draws from no global generator and changes no global state.
        """
        raise NotImplementedError


class Accumulation(Transform):
    """A transform whose results are merged over an epoch; the merged one is stored at its end, once for each phase.

    What stands before it in `transforms` sees every value, what stands behind it the merged result.
    """

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """The result for all values that two results stand for.

        Args:
            earlier: a result of the work, or of `merge`, on the host; not changed.
            later: another.

        Returns:
            A tensor of the same dtype and shape.

        Raises:
            ValueError: the two cannot be merged.
        """
        raise NotImplementedError


Number = float | int | bool | str
"""One element of a capture; `nan`, `inf`, `-inf` and complex numbers such as `(1+2j)` are texts, which `float` and `complex` read."""


class Reading(NamedTuple):
    """One small capture of a committed step, as plain numbers.

    Attributes:
        key: its series.
        clock: where it is in the run; `global_step` is -1 where it is not known.
        late: whether its step had been committed before it arrived, as a gradient may.
        numbers: its elements in row-major order, by a label: the names of the elements where a transform gave them (`mean`), else
            their places (`0`, `2/1`); the label of a single number is empty.
    """

    key: SeriesKey
    clock: Clock
    late: bool
    numbers: dict[str, Number]


class SinkSession(Protocol):
    """An open sink for people and trackers: gets what each committed step captured, outside of any hook."""

    def step(self, readings: Sequence[Reading]) -> None:
        """Take the readings of one committed step, in the order of their capture; what is written is handed to the system at once.

        Raises:
            OSError: it cannot be written.
        """

    def close(self) -> None:
        """The run is over."""


class Sink(Component):
    """Where captures go.

    The one kind that stores captures as they are is `hdf5`. Every other is small: it opens an outlet, and takes captures
    of at most `max_elements` elements.
    """

    family: ClassVar[str] = "sink"

    @property
    def largest(self) -> int | None:
        """Most elements of a capture that the sink takes; None for any number."""
        found: int | None = getattr(self, "max_elements", None)
        return found

    def open(self, directory: Path, rank: int) -> SinkSession:
        """Get ready for a run.

        Args:
            directory: the run directory; nothing is written outside of it.
            rank: rank of the process.

        Raises:
            OSError: the sink cannot be written to.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class EditContext:
    """What an edit may know when it begins.

    Attributes:
        signature: dtype, rank and names of the axes of the value; sizes are those of the first one.
        source: the tensor that `from` names, on the host; None where the edit has none.
    """

    signature: Signature
    source: Tensor | None = None


EditFn = Callable[["Tensor", "Generator"], tuple["Tensor", dict[str, "Tensor"]]]
"""Takes the value and a generator of its own, seeded by the clock; gives the new value and what was drawn, by name."""


class Edit(Component):
    """Rewrites a value in place of the model's own."""

    family: ClassVar[str] = "edit"
    random: ClassVar[bool] = False  # whether it draws from its generator
    gradients_only: ClassVar[bool] = False

    def begin(self, context: EditContext) -> EditFn:
        """Take every decision that the context allows and return the work.

        Returns:
            A callable that never writes to its input and returns a tensor of the same shape, dtype and device, in the
            graph of its input where there is one.

        Raises:
            SignatureError: the edit cannot be applied to such a value.
        """
        raise NotImplementedError
