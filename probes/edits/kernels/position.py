"""The part of a value that an edit changes: positions along named axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from probes.component import Edit, EditContext
from probes.edits.kernels.factor import GIVEN_SCHEMA, is_given, names_in
from probes.signature import Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

LAST_OF = "last_of "  # prefix of a position that is the last place of a mask
INPUT = "input."  # prefix of a name that is an input of the call
SPAN = ("from", "until", "every")
HINT = "write a number, a list of numbers, {from: 2, until: 5}, {given: NAME}, or `last_of NAME`"


def _position(value: Any) -> Any:
    """A position along one axis, as plain data.

    Raises:
        PydanticCustomError: it is none.
    """
    if is_given(value) or _is_whole(value) or (isinstance(value, tuple | list) and value and all(map(_is_whole, value))):
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, str) and value.startswith(LAST_OF) and _is_source(value.removeprefix(LAST_OF)):
        return value
    if (
        isinstance(value, dict)
        and value
        and all(name in SPAN and _is_whole(one) for name, one in value.items())
        and value.get("every", 1) > 0
    ):
        return value
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    raise PydanticCustomError("position", "{shown} is not a position along an axis", {"shown": shown, "hint": HINT})


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_source(name: str) -> bool:
    return all(part.isidentifier() for part in name.removeprefix(INPUT).split("."))


WHOLE = {"type": "integer"}
Position = Annotated[
    Any,
    BeforeValidator(_position),
    WithJsonSchema(
        {
            "anyOf": [
                WHOLE,
                {"type": "array", "items": WHOLE, "minItems": 1},
                {"type": "string", "pattern": r"^last_of \S+$|\$\{"},
                {"type": "object", "properties": dict.fromkeys(SPAN, WHOLE), "additionalProperties": False, "minProperties": 1},
                GIVEN_SCHEMA,
            ]
        }
    ),
]

At = Annotated[
    dict[str, Position] | None,
    Field(
        min_length=1,
        description="positions by axis name, such as {token: 7}: a number, a list, a range {from, until, every}, one for each sample "
        "{given: NAME}, or the last place of a mask for each sample, `last_of input.attention_mask`; default: the whole value",
    ),
]


def given_in(at: Mapping[str, Any] | None) -> list[str]:
    """The names of tensors that the program gives for positions."""
    names = [position["given"] for position in (at or {}).values() if isinstance(position, dict) and "given" in position]
    return names + [name for name in _masks(at) if not name.startswith(INPUT)]


def inputs_in(at: Mapping[str, Any] | None) -> list[str]:
    """The inputs of the call that positions are taken from."""
    return [name for name in _masks(at) if name.startswith(INPUT)]


def _masks(at: Mapping[str, Any] | None) -> list[str]:
    texts = [position for position in (at or {}).values() if isinstance(position, str)]
    return [text.removeprefix(LAST_OF) for text in texts]


class PlacedEdit(Edit):
    """An edit of a part of the value, or with settings that the program gives."""

    def given_names(self) -> tuple[str, ...]:
        """The names of given tensors in its settings, such as `{given: strength}`, and in its positions."""
        settings = [getattr(self, name) for name in type(self).model_fields]
        return (*names_in(*settings), *given_in(getattr(self, "at", None)))

    def input_paths(self) -> tuple[str, ...]:
        """The masks in its positions."""
        return tuple(inputs_in(getattr(self, "at", None)))


class EditedPart:
    """A part of a value: numbers and ranges along some axes, and along one axis perhaps a list, or an index for each sample.

    Args:
        at: positions by the name of the axis.
        signature: names the axes of the value.
        given: the tensors that the program gives, by name.
        input_of: gives an input of the call.

    Raises:
        SignatureError: the axes have no names, or other names, or two axes have lists.
    """

    def __init__(
        self,
        at: Mapping[str, Any] | None,
        signature: Signature,
        given: Mapping[str, Tensor],
        input_of: Callable[[str], Tensor] | None = None,
    ) -> None:
        self.given = given
        self.input_of = input_of
        self.plain: list[Any] = [slice(None)] * (signature.ndim or 0)
        self.batch = signature.axis("batch") if signature.dims and "batch" in signature.dims else 0
        self.listed: tuple[int, Any] | None = None
        for name, position in (at or {}).items():
            axis = signature.axis(name)
            if isinstance(position, int):
                self.plain[axis] = position
            elif isinstance(position, dict) and "given" not in position:
                self.plain[axis] = slice(position.get("from"), position.get("until"), position.get("every"))
            elif self.listed is not None:
                raise SignatureError("only one axis can have a list, or a position for each sample")
            else:
                self.listed = axis, position
        self.is_whole = self.listed is None and all(part == slice(None) for part in self.plain)

    def view(self, value: Tensor) -> tuple[Tensor, Tensor | None, bool]:
        """Apply the numbers and ranges to a value; return the part, with the axis of the list first, and the indices along that axis.

        Returns:
            The view, the indices (None without a list), and whether they are one for each sample, whose axis is then second.

        Raises:
            IndexError: a position is outside of the value.
            ValueError: indices for samples do not fit the value.
        """
        found: Tensor = value[tuple(self.plain)] if self.plain else value
        if self.listed is None:
            return found, None, False
        axis, position = self.listed
        gone = [at for at, part in enumerate(self.plain) if isinstance(part, int)]
        indices = self.indices(position, value.shape[self.batch], value.shape[axis]).to(value.device)
        own, batch = (at - sum(one < at for one in gone) for at in (axis, self.batch))
        if indices.ndim == 0 or isinstance(position, tuple):
            return found.movedim(own, 0), indices.reshape(-1), False
        if self.batch in gone or axis == self.batch:
            raise ValueError("a position for each sample needs all samples: give none along the batch axis")
        return found.movedim((own, batch), (0, 1)), indices, True

    def indices(self, position: Any, samples: int, size: int) -> Tensor:
        """The indices along the axis of the list, not negative: (n,), (samples,), or () for all samples.

        Raises:
            IndexError: one is outside of the axis.
            ValueError: they are not integers, or not one for each sample.
        """
        import torch

        if isinstance(position, tuple):
            found = torch.tensor(position)
        elif isinstance(position, dict):
            found = self.given[position["given"]]
        else:
            found = last_of(self._mask(position.removeprefix(LAST_OF)))
        if found.is_floating_point() or found.is_complex() or found.dtype is torch.bool or found.ndim > 1:
            raise ValueError(f"positions are integers, one for each sample, and these are {str(found.dtype)[6:]}{list(found.shape)}")
        if found.ndim == 1 and not isinstance(position, tuple) and len(found) != samples:
            raise ValueError(f"{len(found)} positions are given for {samples} samples")
        found = found.long()  # torch takes uint8 as a mask, and compares no longer unsigned integers
        found = torch.where(found < 0, found + size, found)
        if found.numel() and not (int(found.min()) >= 0 and int(found.max()) < size):
            raise IndexError(f"a position is out of range for an axis of size {size}")
        return found

    def _mask(self, name: str) -> Tensor:
        if not name.startswith(INPUT):
            return self.given[name]
        if self.input_of is None:
            raise ValueError(f"`{name}` is an input of a call, and there is none")
        return self.input_of(name)


def last_of(mask: Tensor) -> Tensor:
    """The last position of each sample at which a mask is not zero.

    Args:
        mask: (samples, positions).

    Raises:
        ValueError: it has another number of axes, or a sample without any.
    """
    import torch

    if mask.ndim != 2:
        raise ValueError(f"`last_of` needs a mask of (samples, positions), and it has shape {tuple(mask.shape)}")
    there = mask != 0
    if not bool(there.any(dim=1).all()):
        raise ValueError("`last_of` needs a position in each sample, and the mask of a sample is zero everywhere")
    return (there * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(dim=1)


def index(at: Mapping[str, Any] | None, context: EditContext) -> EditedPart:
    """The part of a value at positions along named axes.

    Raises:
        SignatureError: the axes have no names, or other names.
    """
    return EditedPart(at, context.signature, context.given, context.input_of)


def put(value: Tensor, place: EditedPart, part: Tensor) -> Tensor:
    """A copy of `value` with `part` at a place; autograd sees both.

    Raises:
        SignatureError: the part does not fit the place, or the place is outside the value.
    """
    if place.is_whole:
        return part
    try:
        result = value.clone()
        if place.listed is None:
            result[tuple(place.plain)] = part
            return result
        view, indices, by_sample = place.view(result)
        view[(indices, range(view.shape[1])) if by_sample else indices] = part
    except (IndexError, RuntimeError, ValueError) as error:
        raise SignatureError(f"the edit does not fit a value of shape {tuple(value.shape)}: {error}") from None
    return result


def overwrite(value: Tensor, place: EditedPart, part: Tensor) -> Tensor:
    """A copy of `value` with a part at a place that was not computed from it; the gradient of what it replaces is zero.

    Raises:
        SignatureError: the part does not fit the place, or the place is outside the value.
    """
    return value.clone().copy_(part) if place.is_whole else put(value, place, part)


def take(value: Tensor, place: EditedPart) -> Tensor:
    """The part of a value at a place; with a list, its axis is first.

    Raises:
        SignatureError: the place is outside the value.
    """
    try:
        view, indices, by_sample = place.view(value)
        if indices is None:
            return view
        found: Tensor = view[(indices, range(view.shape[1])) if by_sample else indices]
    except (IndexError, ValueError) as error:
        raise SignatureError(f"a value of shape {tuple(value.shape)} has no such position: {error}") from None
    return found
