"""Aliases of a module's inputs: they get the module's own share of the gradient, without that of other consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from probes.containers import with_members
from probes.hooks.capture.model_copies import HookOfOurs
from probes.tensors import children

IN_PLACE = ("torch.nn.modules.activation", "torch.nn.modules.dropout")


class ReplacedContainer(NamedTuple):
    """A container of which the module gets a copy.

    Attributes:
        original: the program's.
        copy: the one with aliases in it.
        members: what the copy held before the call.
    """

    original: Any
    copy: Any
    members: list[Any]


class AliasedInputs:
    """The inputs of one call with a view in place of every tensor that requires a gradient.

    What holds no such tensor stays the same object, and so does a container that cannot be rebuilt. What the module writes into the
    copy of a container is written into the program's after the call.

    Attributes:
        aliases: the views, by id.
        replaced: the containers.
    """

    def __init__(self) -> None:
        self.aliases: dict[int, Tensor] = {}
        self.replaced: list[ReplacedContainer] = []
        self._origins: dict[int, Tensor] = {}
        self._known: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """The same structure with aliases.

        Args:
            value: what a module is called with, owned by the program; it is not written to.
        """
        if isinstance(value, Tensor):
            if not value.requires_grad:
                return value
            alias = value.view_as(value)
            self.aliases[id(alias)], self._origins[id(alias)] = alias, value
            return alias
        if id(value) not in self._known:
            self._known[id(value)] = value  # also ends the recursion in a container that contains itself
            self._known[id(value)] = self._container(value)
        return self._known[id(value)]

    def _container(self, value: Any) -> Any:
        try:
            members = children(value) or ()
            changes = {name: new for name, member in members if (new := self.of(member)) is not member}
            if not changes:
                return value
            copied = with_members(value, changes)
        except Exception:  # a class of the program may raise anything; the tap reports that gradients of its tensors are skipped
            return value
        self.replaced.append(ReplacedContainer(value, copied, _members(copied)))
        return copied

    def write_back(self) -> None:
        """Write the module's changes of copies into the program's containers."""
        for original, copied, before in self.replaced:
            now = _members(copied)
            if len(now) != len(before) or any(old is not new for old, new in zip(before, now, strict=True)):
                self._write(original, copied)

    def _write(self, original: Any, copied: Any) -> None:
        if isinstance(original, MutableMapping):
            for key in [key for key in original if key not in copied]:
                del original[key]
            for key, member in copied.items():
                original[key] = self._restored(member)
        elif hasattr(original, "__setitem__"):
            original.clear()
            original.extend(self._restored(member) for member in copied)
        else:
            for name, member in vars(copied).items():
                object.__setattr__(original, name, self._restored(member))

    def _restored(self, member: Any) -> Any:
        return self._origins.get(id(member), member)


def _members(container: Any) -> list[Any]:
    """The members of a container, including the attributes of an object."""
    if isinstance(container, Mapping):
        return [item for pair in container.items() for item in pair]
    if isinstance(container, SimpleNamespace) or hasattr(container, "__dict__"):
        return [item for pair in vars(container).items() for item in pair]
    return [member for _, member in children(container) or ()]


class AfterCall(HookOfOurs):
    """A forward hook for one call: it is removed when that call is over, whether it returned or raised."""

    def __init__(self, module: Module, args: object, work: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self.args = args
        self.work = work
        self.failed = failed
        self.handle: Any = module.register_forward_hook(self, always_call=True)

    def __call__(self, module: Module, args: object, output: object) -> None:
        """Run the function, if this is the call, and not one within it."""
        if args is self.args:
            self.handle.remove()
            try:
                self.work()
            except Exception as error:  # a class of the program may raise anything
                self.failed(error)


def rewrites(module: Module) -> bool:
    """Whether a module of torch rewrites its input by one operation, such as `ReLU(inplace=True)`: an alias loses its hooks."""
    return getattr(module, "inplace", False) is True and type(module).__module__ in IN_PLACE


def producer(inputs: Mapping[str, Any]) -> Any:
    """The graph node that made the memory of the single input of such a module; None without one."""
    tensor = next(iter(inputs.values()), None)
    if not isinstance(tensor, Tensor):
        return None
    base = tensor._base if tensor._is_view() else tensor
    return base.grad_fn if base is not None else None
