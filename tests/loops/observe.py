"""A script without probes, and every call of every module in it, seen by hand.

Shares no code with the package: `Module.__call__` is replaced for the whole life of the process, digests are hashlib's, gradients
come from hooks on the outputs. What was seen is written when the interpreter ends.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tests.loops.digests import digest_of


def digest(tensor: Tensor) -> str:
    """Type, sizes and bytes of a tensor; bfloat16 as the float32 of the same value, since that is how it is read back."""
    value = tensor.detach().cpu()
    if value.dtype == torch.bfloat16:
        value = value.float()
    return digest_of(str(value.dtype).removeprefix("torch."), tuple(value.shape), value.contiguous().numpy().tobytes())


def tensors(value: Any, name: str = "") -> dict[str, Tensor]:
    """The tensors of a nested value by their keys."""
    if isinstance(value, Tensor):
        return {name.removeprefix("."): value}
    if isinstance(value, dict):
        return {key: leaf for at, each in value.items() for key, leaf in tensors(each, f"{name}.{at}").items()}
    if isinstance(value, (list, tuple)):
        return {key: leaf for at, each in enumerate(value) for key, leaf in tensors(each, f"{name}.{at}").items()}
    return {}


def in_tracer(values: Any) -> bool:
    """Whether a call is made by jit, export, fx or functorch, or by a backward that computes layers again: no call of the program's."""
    if torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1:
        return True
    fake = {"FakeTensor", "FunctionalTensor", "Proxy"}
    return any(type(each).__name__ in fake for each in _flat(values))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _flat(each)]
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in _flat(each)]
    return [value]


class Watch:
    """Every call of every module of this process.

    Attributes:
        calls: one dictionary for each call, in the order in which they entered.
        trees: the modules above any module that was called by itself, with the paths of all that was ever below them.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.trees: list[dict[str, Any]] = []
        self._roots: list[nn.Module] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[nn.Module] = []
        self._stack = threading.local()
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def start(self) -> None:
        """Stand in for `Module.__call__`."""
        original, watch = nn.Module.__call__, self

        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807  # it stands in for the method; torch's profiler reads `self`
            if os.getpid() != watch._pid:
                return original(self, *args, **kwargs)
            stack = watch._stack.__dict__.setdefault("calls", [])
            with watch._lock:
                call = watch._entered(self, args, kwargs, stack[-1] if stack else None)
            stack.append(call["number"])
            try:
                result = original(self, *args, **kwargs)
            finally:
                stack.pop()
            watch._left(call, result)
            return result

        nn.Module.__call__ = __call__  # type: ignore[method-assign]  # the observer replaces the method
        self._stand_in_for_apply()

    def _stand_in_for_apply(self) -> None:
        """Know whether gradients were on before an `autograd.Function` switched them off for its forward."""
        original, local = torch.autograd.Function.apply.__func__, self._stack  # type: ignore[attr-defined]  # of a class method

        def apply(kind: type, *args: Any, **kwargs: Any) -> Any:
            around = local.__dict__.get("grad", False)
            local.grad = around or torch.is_grad_enabled()
            try:
                return original(kind, *args, **kwargs)
            finally:
                local.grad = around

        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]  # as above

    def _entered(self, module: nn.Module, args: Any, kwargs: Any, parent: int | None) -> dict[str, Any]:
        number = self._number(module)
        traced = in_tracer((args, kwargs))
        inputs = [] if traced else [digest(each) for each in tensors([*args, *kwargs.values()]).values()]
        training = {at: tree["root"].training for at, tree in enumerate(self.trees) if number in tree["numbers"]}
        call = {"number": len(self.calls), "module": number, "parent": parent, "training": training, "traced": traced}
        grad = torch.is_grad_enabled() or self._stack.__dict__.get("grad", False)
        call |= {"grad": grad, "inputs": inputs, "outputs": {}, "gradients": [], "returned": False}
        self.calls.append(call)
        return call

    def _left(self, call: dict[str, Any], result: Any) -> None:
        call["returned"] = True
        if call["traced"]:
            return
        for name, each in tensors(result).items():
            call["outputs"][name] = digest(each)
            if each.requires_grad and each.grad_fn is not None:
                each.register_hook(lambda gradient, name=name: call["gradients"].append([name, digest(gradient)]))

    def _number(self, module: nn.Module) -> int:
        if id(module) not in self._numbers:
            self._look_around(module)
        return self._numbers[id(module)]

    def _look_around(self, module: nn.Module) -> None:
        """Find the trees that a module not seen before belongs to, also those whose root is never called."""
        known = {id(root) for root in self._roots}
        above = [each for each in gc.get_objects() if isinstance(each, nn.Module) and any(below is module for below in each.modules())]
        for found in dict.fromkeys(below for each in above for below in each.modules()):
            if id(found) not in known and (found is module or next(found.children(), None) is not None):
                self._roots.append(found)
                self.trees.append({"root": found, "class": type(found).__name__, "paths": {}, "numbers": set()})
        for tree in self.trees:
            for path, each in tree["root"].named_modules():
                number = self._numbers.setdefault(id(each), len(self._kept))
                if number == len(self._kept):
                    self._kept.append(each)
                if number not in tree["numbers"]:
                    tree["numbers"].add(number)
                    tree["paths"].setdefault(path, []).append(number)

    def write(self, log: str) -> None:
        """Put down what was seen; nothing in a child of the program."""
        if os.getpid() == self._pid:
            trees = [{"class": tree["class"], "paths": tree["paths"]} for tree in self.trees]
            Path(log).write_text(json.dumps({"calls": self.calls, "trees": trees}))


def watched(log: str, *arguments: str) -> None:
    """Run a script as `python SCRIPT ARGS...` would, watched; what was seen goes to `log`."""
    script = Path(arguments[0]).absolute()
    watch = Watch()
    atexit.register(watch.write, log)
    watch.start()
    sys.argv = list(arguments)
    sys.path[:1] = [str(script.parent)]
    main = ModuleType("__main__")
    main.__dict__.update(__file__=str(script), __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(compile(script.read_text(), str(script), "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    watched(*sys.argv[1:])
