"""The part of a value that an edit changes: positions along named axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from probes.signature import Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

At = Annotated[
    dict[str, int] | None,
    Field(min_length=1, description="positions by axis name, such as {token: 7}; default: the whole value"),
]


def index(at: dict[str, int] | None, signature: Signature) -> tuple[Any, ...]:
    """The index for positions along named axes.

    Raises:
        SignatureError: the axes have no names, or other names.
    """
    places: list[Any] = [slice(None)] * (signature.ndim or 0)
    for name, position in (at or {}).items():
        places[signature.axis(name)] = position
    return tuple(places)


def put(value: Tensor, place: tuple[Any, ...], part: Tensor) -> Tensor:
    """A copy of `value` with `part` at a place; autograd sees both.

    Raises:
        SignatureError: the part does not fit the place, or the place is outside the value.
    """
    if all(part_of_axis == slice(None) for part_of_axis in place):
        return part
    try:
        result = value.clone()
        result[place] = part
    except (IndexError, RuntimeError) as error:
        raise SignatureError(f"the edit does not fit a value of shape {tuple(value.shape)}: {error}") from None
    return result


def take(value: Tensor, place: tuple[Any, ...]) -> Tensor:
    """The part of a value at a place.

    Raises:
        SignatureError: the place is outside the value.
    """
    try:
        found: Tensor = value[place] if place else value
    except IndexError as error:
        raise SignatureError(f"a value of shape {tuple(value.shape)} has no such position: {error}") from None
    return found
