"""The source of the first value that is not finite: its module, with the state of inputs and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch.nn import Module

from probes.hooks.capture.run_state import CaptureClock
from probes.plan import Binding, Tree
from probes.runner.triggers.nonfinite import is_finite
from probes.tensors import NotCapturable

MOST_NAMED = 3  # tensors of a module


class Source(NamedTuple):
    """The source of a value.

    Attributes:
        kind: `module`: a module with finite inputs and weights; `weights`: one whose weights are not finite; `forward`: the forward of a
            module itself, between two modules that it calls; `batch`: the input of the model; `backward`: the loss, or a backward;
            `unknown`.
        module: path of the module that made it; None if that is not known.
        text: a sentence; empty if nothing is known.
    """

    kind: str
    module: str | None = None
    text: str = ""


class SourceWatch:
    """Remembers which values of the open step are finite, so that the first that is not has a source.

    Args:
        trees: the module trees of the models.
    """

    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self.trees = trees
        self._inputs: set[tuple[str, str, int]] = set()  # modules all of whose inputs were checked, by microstep
        self._value = ""  # the last value of the forward that is finite
        self._gradient = ""  # the last gradient

    def saw(self, binding: Binding, leaf: str, at: CaptureClock) -> None:
        """Record a finite value."""
        if binding.root == "input" and not binding.keys and not binding.op:
            self._inputs.add((binding.model, binding.module, at.microstep))
        if binding.root.startswith("grad"):
            self._gradient = f"`{leaf}` of {_named(binding.target)}"
        elif binding.root in ("input", "output"):
            self._value = f"`{leaf}` of {_named(binding.target)}"

    def end_step(self) -> None:
        """Forget the values of a step."""
        self._inputs.clear()
        self._value = self._gradient = ""

    def of(self, binding: Binding, at: CaptureClock) -> Source:
        """The source of the first value of the step that is not finite.

        Args:
            binding: whose value it is.
            at: its clock.
        """
        if binding.op:
            return Source("unknown")
        if binding.root == "data":
            return Source("weights", binding.module, "it was not finite when the step began: the update before made it, or what was loaded")
        if binding.root.startswith("grad"):
            return self._of_gradient()
        seen = (binding.model, binding.module, at.microstep) in self._inputs
        return self._of_output(binding, seen=seen) if binding.root == "output" else self._of_input(binding, at)

    def _of_output(self, binding: Binding, *, seen: bool) -> Source:
        node = self.trees[binding.model].nodes[binding.module]
        bad = bad_tensors(node.module, below=True)
        if bad:
            names = ", ".join(f"`{name}`" for name in bad[:MOST_NAMED]) + (f" and {len(bad) - MOST_NAMED} more" if bad[MOST_NAMED:] else "")
            inputs = "its inputs are finite, and its weights are not" if seen else "its weights are not finite"
            return Source("weights", binding.module, f"{inputs}: {names}")
        if not seen:
            return Source("unknown", None, "its inputs were not checked: capture `input` too")
        return Source("module", binding.module, f"its inputs and weights are finite, so {_named(binding.module)} made it")

    def _of_input(self, binding: Binding, at: CaptureClock) -> Source:
        if not binding.module:
            return Source("batch", None, "it is an input of the model: the batch is not finite")
        around = binding.module
        while around:
            around = around.rpartition(".")[0]
            if (binding.model, around, at.microstep) in self._inputs:
                kind = self.trees[binding.model].nodes[around].kind
                after = f", after {self._value}" if self._value else ""
                text = f"the inputs of {_named(around)} are finite, so the forward of {kind} itself made it{after}"
                return Source("forward", around, text)
        after = f"the last finite value before it is {self._value}" if self._value else ""
        return Source("unknown", None, after)

    def _of_gradient(self) -> Source:
        if self._gradient:
            before = f"the last finite gradient before it is {self._gradient}"
            return Source("backward", None, f"the values of the forward that were checked are finite; {before}")
        return Source("backward", None, "it is the first gradient of the backward: the loss, or what follows on this value, made it")


def bad_tensors(module: Module, *, below: bool = False) -> list[str]:
    """Names of the parameters and buffers of a module that are not finite.

    Args:
        module: the module.
        below: whether those of the modules below it count.
    """
    parameters, buffers = module.named_parameters(recurse=below), module.named_buffers(recurse=below)
    found = []
    for name, tensor in (*parameters, *buffers):
        try:
            if not is_finite(tensor):
                found.append(name)
        except (NotCapturable, RuntimeError):  # such as a lazy one, which has no values
            continue
    return found


def _named(path: str) -> str:
    return f"`{path}`" if path else "the model"
