"""Hooks as PyTorch's documentation has them, on every module, with a walker of their own: what the package is compared with."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

Saved = dict[tuple[str, str], dict[tuple[int, int], Tensor]]


def named(key: Any) -> str:
    """A key as it stands in a value path: quoted where it is more than a word."""
    return str(key) if str(key).replace("-", "_").isidentifier() or isinstance(key, int) else json.dumps(key)


def tensors_in(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a nested value with their paths."""
    if isinstance(value, Tensor):
        yield path, value
    elif hasattr(value, "items"):
        for key, member in value.items():
            yield from tensors_in(member, f"{path}.{named(key)}")
    elif dataclasses.is_dataclass(value):
        for name, member in vars(value).items():
            yield from tensors_in(member, f"{path}.{name}")
    elif isinstance(value, tuple | list):
        names = getattr(value, "_fields", range(len(value)))
        for name, member in zip(names, value, strict=True):
            yield from tensors_in(member, f"{path}.{name}")


class ByHand:
    """Saves inputs, outputs and gradients of outputs of every module.

    Attributes:
        saved: (path, leaf) -> (outermost call, call) -> tensor.
    """

    def __init__(self, model: nn.Module) -> None:
        self.saved: Saved = defaultdict(dict)
        self.called: set[str] = set()
        self.outermost = -1
        self.calls: dict[tuple[str, str], int] = defaultdict(int)
        self.handles = [model.register_forward_pre_hook(self._begin, prepend=True)]
        for path, module in model.named_modules():
            if type(module).forward is not nn.Module.forward:
                self.handles.append(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
                self.handles.append(module.register_forward_hook(self._after(path)))

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def _begin(self, *_: Any) -> None:
        self.outermost += 1
        self.calls.clear()

    def _at(self, path: str, moment: str) -> tuple[int, int]:
        call = self.calls[path, moment]
        self.calls[path, moment] += 1
        return self.outermost, call

    def _before(self, path: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            at = self._at(path, "before")
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
            given = dict(bound.arguments)
            for name, parameter in bound.signature.parameters.items():
                if parameter.kind is parameter.VAR_KEYWORD:
                    given.update(given.pop(name, {}))
            for name, value in given.items():
                for leaf, tensor in tensors_in(value, f"input.{name}"):
                    self.saved[path, leaf][at] = tensor.detach().clone()

        return hook

    def _after(self, path: str) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            at = self._at(path, "after")
            self.called.add(path)
            for leaf, tensor in tensors_in(output, "output"):
                self.saved[path, leaf][at] = tensor.detach().clone()
                if tensor.grad_fn is not None or (tensor.requires_grad and not isinstance(tensor, nn.Parameter)):
                    tensor.register_hook(self._gradient(path, f"grad_{leaf}", at))

        return hook

    def _gradient(self, path: str, leaf: str, at: tuple[int, int]) -> Any:
        def hook(gradient: Tensor | None) -> None:
            if gradient is not None:
                self.saved[path, leaf][at] = gradient.detach().clone()

        return hook
