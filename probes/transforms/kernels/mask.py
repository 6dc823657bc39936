"""Masks: exclude padding from the numbers that a transform computes."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from probes.component import TransformFn
from probes.signature import Signature, SignatureError
from probes.value_path import ValuePath

if TYPE_CHECKING:
    from torch import Tensor


class MaskAbsent(LookupError):
    """The call has no tensor if a mask is expected."""


class _Given(threading.local):
    """The masks of the call whose value is being transformed, by path."""

    def __init__(self) -> None:
        self.masks: Mapping[str, Any] = {}


_given = _Given()


@contextmanager
def given(masks: Mapping[str, Any]) -> Iterator[None]:
    """Make these masks available to transforms in the body.

    Args:
        masks: the value at each path that a transform names; anything except a tensor is not a mask.
    """
    before, _given.masks = _given.masks, masks
    try:
        yield
    finally:
        _given.masks = before


def _input_path(text: str) -> str:
    try:
        path = ValuePath.parse(text)
    except ValueError as error:
        raise PydanticCustomError("value_path", "{why}", {"why": str(error)}) from None
    if path.root != "input" or not path.keys:
        message = "`mask` must be an input of the same call, such as `input.attention_mask`, got `{text}`"
        raise PydanticCustomError("value_path", message, {"text": text, "hint": "write `input.NAME` or `input.0`"})
    return str(path)


Mask = Annotated[
    str | None,
    AfterValidator(lambda text: text if text is None else _input_path(text)),
    Field(
        description="Input of the same call of the module, such as input.attention_mask, that is not zero where elements count; "
        "its axes are the first ones of the value. Default: every element counts."
    ),
]


def require_reduced(signature: Signature, mask: str | None, dims: tuple[str | int, ...] | None) -> None:
    """Refuse a mask if the first axis of the value remains.

    Raises:
        SignatureError: `dims` does not name the first axis.
    """
    if mask is not None and dims is not None and signature.ndim and 0 not in signature.axes(dims):
        raise SignatureError("`mask` needs the first axes of the value in `dims`: the number of elements that count differs along them")


def masked(work: TransformFn, mask: str | None, axes: Collection[int] | None = None) -> TransformFn:
    """A transform of the elements that count.

    Args:
        work: the transform of all elements.
        mask: path of the mask; None for all elements.
        axes: the axes that `work` reduces; None for all.

    Returns:
        A function that raises `MaskAbsent` if the call has no mask, and ValueError where its shape does not fit.
    """
    if mask is None:
        return work

    def apply(tensor: Tensor) -> Tensor:
        return work(_counting(tensor, _mask_of(mask), mask, axes))

    return apply


def input_of(path: str) -> Tensor:
    """An input of the call, for an edit.

    Raises:
        MaskAbsent: the call has no such tensor.
    """
    return _mask_of(path, "mask")


def labels_of(path: str) -> Tensor:
    """The labels of the samples of the call, an input of it.

    Raises:
        MaskAbsent: the call has no such tensor.
    """
    return _mask_of(path, "labels")


def _mask_of(path: str, what: str = "mask") -> Tensor:
    from torch import Tensor

    found = _given.masks.get(path)
    if not isinstance(found, Tensor):
        raise MaskAbsent(
            f"the {what} `{path}` is {'not there' if found is None else f'a {type(found).__name__}, not a tensor'} in this call"
        )
    return found


def _counting(tensor: Tensor, mask: Tensor, path: str, axes: Collection[int] | None) -> Tensor:
    """The elements that count: along the first axis of as many as the mask has, whose others have size 1."""
    sizes = tuple(tensor.shape[: mask.ndim])
    fits = 0 < mask.ndim <= tensor.ndim and all(size in (1, wanted) for size, wanted in zip(mask.shape, sizes, strict=True))
    if not fits:
        message = f"the mask `{path}` has shape {tuple(mask.shape)}, and the value {tuple(tensor.shape)}"
        raise ValueError(f"{message}: the axes of a mask are the first ones of the value")
    if axes is not None and not {*range(mask.ndim)} <= {*axes}:
        raise ValueError(f"the mask `{path}` has {mask.ndim} axes, and `dims` does not name all of the first {mask.ndim} of the value")
    kept = tensor[(mask.to(tensor.device) != 0).expand(sizes)]
    return kept.reshape(len(kept), *[1] * (mask.ndim - 1), *tensor.shape[mask.ndim :])
