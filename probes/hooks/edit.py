"""Edits: one validated code path for every change of a value of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from probes.component import Edit, EditContext
from probes.containers import with_members
from probes.errors import EditError
from probes.hooks.backward import GradHook, GradTap
from probes.hooks.capture.run_state import CaptureClock
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import breaks_graph, function_modes
from probes.signature import Signature, SignatureError
from probes.tensors import DTYPE_NAMES, LeafNotFound, children, leaves
from probes.transforms.kernels.mask import MaskAbsent, input_of
from probes.value_path import quoted

Change = Callable[[Tensor], Tensor]


class Editor:
    """Applies one edit to leaves, checks the results, and keeps the drawn tensors.

    Args:
        edit: the edit as the spec says it.
        source: gives the tensor its `from` names, on the host; None without. The program may give another between two calls.
        dims: names of the value's axes.
        where: the probe and its target, for messages.
        place: the value that is edited, on which the numbers of a random edit depend.
        given: the other tensors that the program gives now, by name.
    """

    def __init__(
        self,
        edit: Edit,
        source: Callable[[], Tensor | None],
        dims: tuple[str, ...] | None,
        where: str,
        place: str,
        given: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.given = {} if given is None else given
        self.edit = edit
        self.source = source
        self.dims = dims
        self.where = where
        self.place = place
        self.used: Tensor | None = None
        self.begun: dict[tuple[torch.dtype, int], Any] = {}
        self.drawn: dict[str, Tensor] = {}

    def __call__(self, value: Tensor, at: CaptureClock, call: int) -> Tensor:
        """The edited value: same shape, dtype and device, in the graph of `value`.

        Raises:
            EditError: the edit cannot be applied, or returned a value that the model cannot use.
        """
        key = (value.dtype, value.ndim)
        source = self.source()
        if source is not self.used:
            self.used = source
            self.begun.clear()
        try:
            if key not in self.begun:
                if self.dims is not None and len(self.dims) != value.ndim:
                    raise SignatureError(f"`dims` names {len(self.dims)} axes ({', '.join(self.dims)}), but the value has {value.ndim}")
                signature = Signature(DTYPE_NAMES[value.dtype], tuple(value.shape), self.dims)
                self.begun[key] = self.edit.begin(EditContext(signature, source, self.given, input_of))
            with torch.device("cpu") if function_modes() else nullcontext():  # a default device is such a mode
                result, self.drawn = self.begun[key](value, self.generator(at, call))
        except (SignatureError, MaskAbsent, RuntimeError, ValueError, TypeError) as error:
            raise EditError(f"{self.where}: edit `{self.edit.kind}` in epoch {at.epoch} step {at.step}: {error}") from error
        return self.checked(value, result, at)

    def generator(self, at: CaptureClock, call: int) -> torch.Generator:
        """A generator whose numbers depend only on seed and clock and, unless the edit draws alike everywhere, on place and phase."""
        generator = torch.Generator("cpu")
        place = "" if self.edit.draws_alike else f"{self.place} {at.phase}"
        seed = int.from_bytes(blake2b(place.encode(errors="surrogatepass"), digest_size=7).digest()) if place else 0
        for number in (getattr(self.edit, "seed", 0), at.epoch, at.step, at.microstep + 1, call):
            seed = (seed * 1_000_003 + number + 1) % (1 << 63)
        generator.manual_seed(seed)
        return generator

    def checked(self, value: Tensor, result: object, at: CaptureClock) -> Tensor:
        """The result of an edit.

        Raises:
            EditError: it differs from the value in shape, dtype or device.
        """
        if not isinstance(result, Tensor):
            raise EditError(f"{self.where}: edit `{self.edit.kind}` gave a {type(result).__name__} instead of a tensor")
        for name, ours, theirs in (
            ("shape", tuple(result.shape), tuple(value.shape)),
            ("dtype", result.dtype, value.dtype),
            ("device", result.device, value.device),
        ):
            if ours != theirs:
                place = f"epoch {at.epoch} step {at.step}"
                raise EditError(
                    f"{self.where}: edit `{self.edit.kind}` gave {name} {ours} in {place}, but the value has {theirs}; training stopped"
                )
        return result


class EditTap(Tap):
    """Rewrites an output or an input."""

    __slots__ = ("editor",)

    editor: Editor

    def begin(self, editor: Editor) -> EditTap:
        """Give the tap its editor."""
        self.editor = editor
        return self

    def changed(self, value: Any, at: CaptureClock, call: int, recompute: bool = False) -> Any:
        """The value with its one leaf edited; containers are copied, and never written to.

        Raises:
            EditError: the path leads nowhere or to several tensors, or the edit fails.
        """
        if recompute:
            self.refuse_recompute()
        keys = self.one_leaf(value)
        self.account.fired += not recompute

        def change(leaf: Tensor) -> Tensor:
            return self.editor(leaf, at, call)

        try:
            result = rebuilt(value, keys, change)
        except LeafNotFound as error:
            hint = "edit a value that is a tensor, or one in a container that can be copied"
            raise EditError(f"{self.editor.where}: {error}; {hint}") from error
        if not recompute:
            self.account.give(at.opened)
            self.record(at, call)
        return result

    def refuse_recompute(self) -> None:
        """Refuse an edit that a recompute of activation checkpointing cannot repeat exactly."""
        if self.editor.edit.random or self.within is not None:
            raise EditError(
                f"{self.editor.where}: edit `{self.editor.edit.kind}` is random or depends on the call, and the module is recomputed by "
                "activation checkpointing, which cannot repeat it; edit a module outside the checkpointed part"
            )

    def one_leaf(self, value: object) -> tuple[str, ...]:
        """The keys of the one tensor that the path leads to."""
        at: Any = value
        for key in self.keys:
            found = dict(children(at) or ())
            if key not in found:
                known = ", ".join(quoted(name) for name in found) or "no members"
                raise EditError(f"{self.editor.where}: the value has no `{key}`; it has {known}")
            at = found[key]
        below = [path for path, _ in leaves(at, "")]
        if len(below) != 1:
            listed = ", ".join(f"{self.root}{path}" for path in below[:6])
            raise EditError(f"{self.editor.where}: an edit needs one leaf, and the value has {len(below)}: {listed or 'no tensors'}")
        rest, inner = [], at
        while not isinstance(inner, Tensor):
            key, inner = next((key, member) for key, member in children(inner) or () if next(leaves(member, ""), None) is not None)
            rest.append(key)
        return (*self.keys, *rest)

    def record(self, at: CaptureClock, call: int) -> None:
        """Store the drawn tensors, under `edit.<name>`."""
        for name, tensor in self.editor.drawn.items():
            self.put(self.recorder(f"edit.{name}"), tensor, at, call)


def rebuilt(value: Any, keys: tuple[str, ...], change: Change) -> Any:
    """A shallow copy of a nested value with one leaf changed."""
    if not keys:
        return change(value)
    key, rest = keys[0], keys[1:]
    return with_members(value, {key: rebuilt(dict(children(value) or ())[key], rest, change)})


class GradEditTap(GradTap):
    """Rewrites the gradient of a value: arms a tensor hook that returns a new one."""

    __slots__ = ("editor",)

    editor: Editor

    def edit_with(self, editor: Editor) -> GradEditTap:
        """Give the tap its editor."""
        self.editor = editor
        return self

    def take(self, value: object, at: CaptureClock, call: int) -> None:
        """Arm the one tensor of the value; a failure stops training."""
        try:
            found = list(self.parts(value))
        except LeafNotFound as error:
            raise EditError(f"{self.editor.where}: {error}") from None
        if len(found) != 1:
            raise EditError(f"{self.editor.where}: an edit needs one leaf, and `{self.root}` has {len(found)} tensors")
        self.handle(value, at, call)

    def hook(self, recorder: Any, at: CaptureClock, call: int, recompute: bool) -> GradHook:
        """The tensor hook that edits."""
        if recompute and (self.editor.edit.random or self.within is not None):
            raise EditError(f"{self.editor.where}: edit `{self.editor.edit.kind}` cannot be repeated in a recompute")
        return EditingHook(self, recorder, at, call)


class EditingHook(GradHook):
    """A tensor hook that returns an edited gradient."""

    __slots__ = ()

    @breaks_graph
    def __call__(self, grad: Tensor | None) -> Tensor | None:  # type: ignore[override]  # PyTorch takes the return value as the new gradient
        """The edited gradient; None stays None."""
        if grad is None:
            return None
        if not self.backward:
            self.account.returned += 1
        self.backward += 1
        self.alias = None
        tap = self.tap
        if not isinstance(tap, GradEditTap):
            raise AssertionError("BUG: an editing hook without an edit")
        self.opened.differentiated = True
        self.account.give(self.opened)
        shaped = grad if self.reshape is None else grad.reshape(self.reshape)
        result = tap.editor(shaped, self, self.call)
        for name, tensor in tap.editor.drawn.items():
            tap.put(tap.recorder(f"edit.{name}"), tensor, self, self.call, self.backward - 1)
        return result.reshape(grad.shape)
