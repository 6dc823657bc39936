"""The tensors that the program gives to edits, and digests of them for the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from probes.errors import UsageError, nearest
from probes.plan import Binding
from probes.plan.edit_source import digest_of, given_name, tensor_of
from probes.tensors import DTYPE_NAMES


class GivenTensors:
    """The tensors that the program gives by name, with the place in the run from which they are used.

    Args:
        bindings: those of the plan; they hold what was given at the start.

    Attributes:
        tensors: name -> the tensor that is used now, on the host.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.tensors: dict[str, Tensor] = {}
        for binding in bindings:
            name = given_name(binding.probe.edit)
            if name and binding.source is not None:
                self.tensors[name] = binding.source
            self.tensors.update(binding.given)
        self._known = {name: _row(tensor) for name, tensor in self.tensors.items()}
        self._set: list[dict[str, Any]] = []

    def set(self, values: Mapping[str, Any], place: Mapping[str, Any]) -> None:
        """Replace given tensors.

        Args:
            values: tensors, arrays or numbers by name; each is copied.
            place: the epoch, phase and step from which on they are used.

        Raises:
            UsageError: no edit takes a tensor of this name, or a value is not a tensor.
        """
        unknown = next((name for name in values if name not in self.tensors), None)
        if unknown is not None:
            known = ", ".join(f"`{name}`" for name in self.tensors) or "none"
            hint = nearest(unknown, self.tensors)
            raise UsageError(f"no edit takes `{unknown}`; the spec takes {known}" + (f"; {hint}" if hint else ""))
        found = {name: _read(name, value) for name, value in values.items()}
        self.tensors.update(found)
        self._set += [{"name": name, **place, **_row(tensor)} for name, tensor in found.items()]

    def end_epoch(self) -> dict[str, Any]:
        """The tensors in use when the epoch began, and those given in it, for its file."""
        rows, self._set = self._set, []
        found = {"start": dict(self._known), "set": rows}
        self._known.update({name: _row(tensor) for name, tensor in self.tensors.items()})
        return found


def _read(name: str, value: Any) -> Tensor:
    try:
        return tensor_of(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"`{name}` is not a tensor: {error}") from None


def _row(tensor: Tensor) -> dict[str, Any]:
    return {"blake3": digest_of(tensor), "dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape)}
