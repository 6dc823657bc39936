"""Inputs of a call that transforms use as masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn import Module

from probes.hooks.capture.compiled import is_dynamo_compiling
from probes.hooks.capture.run_state import Gate, RunState
from probes.hooks.capture.tap import Tap
from probes.hooks.capture.tracing import runs_eagerly
from probes.hooks.forward import ForwardHook
from probes.tensors import LeafNotFound, follow
from probes.transforms.kernels.mask import given
from probes.value_path import NamedInputs, ValuePath


def masks_of(paths: Sequence[str], names: NamedInputs, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The values at some paths of the inputs of a call; a path that leads nowhere is left out.

    Args:
        paths: the paths, such as `input.attention_mask` or `input.0`.
        names: the parameters of the module's `forward`.
        inputs: the inputs by name.
    """
    found: dict[str, Any] = {}
    for path in paths:
        try:
            ((_, found[path]),) = follow(inputs, names.keys(ValuePath.parse(path).keys), "input")
        except (LeafNotFound, ValueError):
            continue
    return found


class MaskedForwardHook(ForwardHook):
    """A forward hook some of whose transforms take an input of the call as a mask."""

    __slots__ = ("masks", "names")

    def __init__(self, target: str, state: RunState, gate: Gate, taps: Sequence[Tap], module: Module) -> None:
        super().__init__(target, state, gate, taps, module)
        self.names = NamedInputs.of(module.forward)
        self.masks = tuple(dict.fromkeys(path for tap in taps for path in tap.masks))

    @runs_eagerly
    def with_inputs(self, module: Module, args: tuple[Any, ...], *rest: Any) -> object:
        """Capture the output while the masks of the call are known; a hook that PyTorch has moved to another module gets no `kwargs`."""
        if len(rest) < 2:
            return None
        kwargs, output = rest
        if not self.gate.due or is_dynamo_compiling():  # a compiled graph keeps outputs only, so values with a mask are skipped there
            return self(module, args, output)
        with given(masks_of(self.masks, self.names, self.names.bind(args, kwargs))):
            return self(module, args, output)
