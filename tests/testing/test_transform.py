"""`check_transform` finds each broken rule."""

from __future__ import annotations

from itertools import count
from typing import Literal

import pytest
import torch
from pydantic import Field
from torch import Tensor

from probes.component import Accumulation, Transform, TransformFn
from probes.signature import Signature, SignatureError
from probes.testing import check_transform, example

CALLS = count()


class Fine(Transform):
    """Doubles floats."""

    kind: Literal["acme.fine"] = "acme.fine"
    by: float = Field(default=2.0, description="The factor.")

    def out(self, signature: Signature) -> Signature:
        signature.require(("float32", "float64"), "cast first")
        return signature

    def begin(self, signature: Signature) -> TransformFn:
        return self.work

    def work(self, tensor: Tensor) -> Tensor:
        return tensor * self.by


class WritesInput(Fine):
    """Doubles in place."""

    def work(self, tensor: Tensor) -> Tensor:
        return tensor.mul_(2)


class DrawsGlobally(Fine):
    """Adds noise."""

    def work(self, tensor: Tensor) -> Tensor:
        return tensor + torch.randn((), dtype=tensor.dtype) * 0


class Differs(Fine):
    """Differs each time."""

    def work(self, tensor: Tensor) -> Tensor:
        return tensor + next(CALLS)


class PredictsWrongly(Fine):
    """Predicts float64 and returns float32."""

    def out(self, signature: Signature) -> Signature:
        return super().out(signature).replace(dtype="float64")


class NeedsAllParts(Fine):
    """Refuses in `out` what `begin` would take."""

    def out(self, signature: Signature) -> Signature:
        if signature.shape is None:
            raise SignatureError("wants a shape")
        return super().out(signature)


class KeepsFirstSize(Fine):
    """Returns results of the size of the first value."""

    def begin(self, signature: Signature) -> TransformFn:
        return lambda tensor: tensor.new_zeros([size or 0 for size in signature.shape or ()])


class LabelsByName(Fine):
    """Labels its last axis by a name that another axis may have."""

    def out(self, signature: Signature) -> Signature:
        found = super().out(signature)
        if not signature.dims:
            return found
        size = signature.shape[-1] if signature.shape is not None else None
        return found.replace(dims=(*signature.dims[:-1], "made"), coords={} if size is None else {"made": tuple(range(size))})


class Sums(Fine, Accumulation):
    """Adds up over an epoch."""

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        return earlier + later


class MergesInPlace(Sums):
    """Writes to its argument."""

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        return earlier.add_(later)


class ForgetsCounts(Sums):
    """Takes the mean of means."""

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        return (earlier + later) / 2


class MergesToOne(Sums):
    """Returns one number."""

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        return (earlier + later).sum().reshape(1)


class Undescribed(Fine):
    """Has a field without a description."""

    other: int = 1


def test_a_sound_transform_passes() -> None:
    taken = check_transform(Fine())
    assert {signature.dtype for signature in taken} == {"float32", "float64"}


def test_a_sound_accumulation_passes() -> None:
    assert check_transform(Sums())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WritesInput(), "writes to its input"),
        (DrawsGlobally(), "draws from a global random generator"),
        (Differs(), "differs the second time"),
        (PredictsWrongly(), "was predicted to be float64"),
        (NeedsAllParts(), "refuses unknown.*wants a shape"),
        (KeepsFirstSize(), "begun for"),
        (LabelsByName(), "labels"),
        (MergesInPlace(), "writes to what it is given"),
        (ForgetsCounts(), "depends on how the parts are grouped"),
        (MergesToOne(), "changes dtype or shape"),
        (Undescribed(), "field `other` of `acme.fine` has no description"),
    ],
)
def test_each_broken_rule_is_named(broken: Transform, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_transform(broken)


def test_settings_that_fit_no_value_fail() -> None:
    with pytest.raises(AssertionError, match="takes none of the values"):
        check_transform(Fine(), dtypes=["int64"])


def test_examples_repeat_and_do_not_touch_the_global_generators() -> None:
    before = torch.get_rng_state()
    value = example(Signature("bfloat16", (2, 3)))
    assert torch.equal(value, example(Signature("bfloat16", (2, 3))))
    assert (value.dtype, value.shape) == (torch.bfloat16, (2, 3))
    assert torch.equal(torch.get_rng_state(), before)
