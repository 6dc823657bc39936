"""`check_edit` finds each broken rule."""

from __future__ import annotations

from itertools import count
from typing import ClassVar, Literal

import pytest
import torch
from torch import Generator, Tensor

from probes.component import Edit, EditContext, EditFn
from probes.testing import check_edit

CALLS = count()


class Fine(Edit):
    """Doubles floats."""

    kind: Literal["acme.fine"] = "acme.fine"

    def begin(self, context: EditContext) -> EditFn:
        context.signature.require(("float32",), "cast first")
        return self.apply

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value * 2, {}


class WritesInput(Fine):
    """Doubles in place."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            return value.mul_(2), {}


class DrawsGlobally(Fine):
    """Adds noise of the global generator."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value + torch.rand(()) * 0, {}


class DrawsUndeclared(Fine):
    """Draws without being `random`."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value + torch.rand((), generator=generator), {}


class DrawsDeclared(DrawsUndeclared):
    """Draws, and declares it."""

    random: ClassVar[bool] = True


class Differs(Fine):
    """Differs each time."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value + next(CALLS), {}


class Widens(Fine):
    """Returns float64."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value.double(), {}


class ReturnsNumbers(Fine):
    """Returns a number as what was drawn."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value * 2, {"factor": 2}  # type: ignore[dict-item]  # the mistake that is tried


class ReadsMemory(Fine):
    """Depends on the layout in memory."""

    def apply(self, value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return value + float(value.is_contiguous()), {}


class RefusesSilently(Fine):
    """Refuses without a reason."""

    def begin(self, context: EditContext) -> EditFn:
        from probes.signature import SignatureError

        raise SignatureError("")


@pytest.mark.parametrize("sound", [Fine(), DrawsDeclared()], ids=lambda edit: type(edit).__name__)
def test_a_sound_edit_passes(sound: Edit) -> None:
    assert {signature.dtype for signature in check_edit(sound)} == {"float32"}


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WritesInput(), "writes to its input"),
        (DrawsGlobally(), "draws from a global random generator"),
        (DrawsUndeclared(), "is not `random`"),
        (Differs(), "differs the second time"),
        (Widens(), "changes the dtype from torch.float32 to torch.float64"),
        (ReturnsNumbers(), "must be tensors by name"),
        (ReadsMemory(), "not contiguous"),
        (RefusesSilently(), "without a reason"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_each_broken_rule_is_named(broken: Edit, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_edit(broken)


def test_settings_that_fit_no_value_fail() -> None:
    with pytest.raises(AssertionError, match="takes none of the values"):
        check_edit(Fine(), dtypes=["int64"])
