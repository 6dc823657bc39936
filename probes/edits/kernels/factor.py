"""A factor of an edit: a number, or a number that the program gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from torch import Tensor


def is_given(value: Any) -> bool:
    """Whether a setting is `{given: NAME}`."""
    return isinstance(value, dict) and [*value] == ["given"] and str(value["given"]).isidentifier()


def _factor(value: Any) -> Any:
    if is_given(value) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return float(value) if isinstance(value, int) else value
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    raise PydanticCustomError("factor", "{shown} is not a factor", {"shown": shown, "hint": "write a number, or {given: NAME}"})


GIVEN_SCHEMA = {"type": "object", "properties": {"given": {"type": "string"}}, "required": ["given"], "additionalProperties": False}


def _given(value: Any) -> Any:
    if value is None or is_given(value):
        return value
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    raise PydanticCustomError("factor", "{shown} is not given by the program", {"shown": shown, "hint": "write {given: NAME}"})


GivenTensor = Annotated[Any, BeforeValidator(_given), WithJsonSchema(GIVEN_SCHEMA)]

Factor = Annotated[Any, BeforeValidator(_factor), WithJsonSchema({"anyOf": [{"type": "number"}, GIVEN_SCHEMA]})]


def number_of(factor: Any, given: Mapping[str, Tensor]) -> float:
    """The current value of a factor.

    Raises:
        ValueError: the program gives something else than one number.
    """
    if not isinstance(factor, dict):
        return float(factor)
    found = given[factor["given"]]
    if found.numel() != 1 or found.is_complex():
        raise ValueError(f"`{factor['given']}` is a factor, so it must be one number, and has shape {tuple(found.shape)}")
    return float(found.item())


def names_in(*settings: Any) -> list[str]:
    """The names of given tensors in some settings."""
    return [setting["given"] for setting in settings if is_given(setting)]
