"""Lists the torch functions that each module of a model calls in its own forward, in the first call of the module."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from torch.overrides import TorchFunctionMode, resolve_name

from probes.hooks.operations import calling_frame, function_name
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES, leaves


@dataclass(frozen=True)
class ListedOperation:
    """One call of a torch function.

    Attributes:
        name: as `ops` of a spec takes it, such as `softmax[0]`.
        function: the full name, such as `torch.nn.functional.softmax`; empty if torch does not know it.
        outputs: the tensors that it returned, by leaf.
    """

    name: str
    function: str
    outputs: dict[str, Signature] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The name, and the tensors that were returned."""
        shown = [f"{leaf.removeprefix('output').removeprefix('.')} {signature}".strip() for leaf, signature in self.outputs.items()]
        return f"{self.name}  {', '.join(shown)}"


class OperationListing(TorchFunctionMode):
    """Records every function that returns a tensor, by the module that is running.

    Args:
        seen: ids of the modules whose first call is over.

    Attributes:
        found: the operations of each module, by its id, in the order of the calls.
    """

    def __init__(self, seen: Container[int]) -> None:
        super().__init__()
        self.seen = seen
        self.found: dict[int, list[ListedOperation]] = defaultdict(list)
        self._counts: dict[int, Counter[str]] = defaultdict(Counter)

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function and record it."""
        result = func(*args, **(kwargs or {}))
        name = function_name(func)
        frame = calling_frame(sys._getframe(1))
        if name and frame is not None:
            module = id(frame.f_locals["self"])
            outputs = {leaf: Signature(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape)) for leaf, tensor in leaves(result, "output")}
            if outputs and module not in self.seen:
                listed = ListedOperation(f"{name}[{self._counts[module][name]}]", _full_name(func), outputs)
                self.found[module].append(listed)
            self._counts[module][name] += 1
        return result


def _full_name(function: Callable[..., Any]) -> str:
    found: str | None = resolve_name(function)
    return found or ""
