"""The captures that the bindings of a plan will store, once the values of one call are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from probes.plan.binding import Binding, Plan
from probes.plan.reachable import ReachableTensor
from probes.signature import Signature, SignatureError
from probes.tensors import NO_SHARE
from probes.value_path import PARAMETER_ROOTS, ValuePath, forward_signature

Values = Callable[[str, str], tuple[Mapping[str, ReachableTensor], int]]
"""From a model's name and a module's path to the tensors of the module's first call by leaf, and its calls per call of the model."""

ROOTS = {"grad_output": "output", "grad_input": "input", "grad_input_total": "input"}
FLOATING = ("float", "bfloat", "complex")


@dataclass(frozen=True)
class Predicted:
    """The captures that a binding will store of one leaf.

    Attributes:
        binding: the binding.
        leaf: the leaf, such as `output.0`; the binding's value if nothing is known about it.
        stored: what one capture is.
        calls: captures for each call of the model; None if that is not known.
        problem: why nothing would be stored; empty if nothing is wrong.
        called: whether the module was called, so that the problem is one of each call.
    """

    binding: Binding
    leaf: str
    stored: Signature
    calls: int | None = None
    problem: str = ""
    called: bool = True

    @property
    def nbytes(self) -> int | None:
        """Bytes for each call of the model, or None if they are not known."""
        return None if self.stored.nbytes is None else self.stored.nbytes * (1 if self.calls is None else self.calls)


def predict(plan: Plan, values: Values | None = None) -> list[Predicted]:
    """Predict the captures of each binding, in the plan's order.

    Args:
        plan: the plan.
        values: what was seen of the modules; without it only the parameters and the transforms tell.
    """
    return [one for binding in plan.bindings for one in _of(plan, binding, values)]


def misfits(predicted: Sequence[Predicted]) -> list[str]:
    """The problems that a watched call shows: missing values of exact paths, and probes without any capture.

    Args:
        predicted: what `predict` gave.
    """
    lines = []
    for name in dict.fromkeys(one.binding.name for one in predicted):
        own = [one for one in predicted if one.binding.name == name]
        wrong = [one for one in own if one.problem and one.called and _is_strict(one.binding)]
        if not wrong and all(one.problem and one.called for one in own):
            wrong = own[:1]
        lines += [f"probe `{name}`: `{one.leaf}` of `{one.binding.target}` cannot be captured: {one.problem}" for one in wrong]
    return lines


def _is_strict(binding: Binding) -> bool:
    """Whether each value is expected in each step."""
    expect = binding.probe.expect.fires if binding.probe.expect else None
    return expect == "each_step" or (expect is None and binding.exact)


def _of(plan: Plan, binding: Binding, values: Values | None) -> Iterator[Predicted]:
    if values is None or binding.op or binding.root in (*PARAMETER_ROOTS, "memory", "loop"):
        yield Predicted(binding, binding.value, binding.stored)
        return
    seen, calls = values(binding.model, binding.module)
    if not calls:
        yield Predicted(binding, binding.value, binding.stored, 0, "is not called in this pass", called=False)
        return
    keys = _keys(plan, binding)
    leaves = [*_leaves(binding, keys, seen)]
    if not leaves:
        root = ROOTS.get(binding.root, binding.root)
        known = ", ".join(f"`{leaf}`" for leaf, one in seen.items() if not one.keys and leaf.partition(".")[0] == root) or "no tensor"
        yield Predicted(binding, binding.value, binding.stored, 0, f"`{binding.value}` has no tensor; the call has {known}")
    for leaf, one in leaves:
        lost = binding.root == "grad_input" and not one.shared
        leaf = leaf + binding.suffix
        yield Predicted(binding, leaf, Signature(), 0, NO_SHARE) if lost else _stored(binding, leaf, one.signature, calls)


def _keys(plan: Plan, binding: Binding) -> tuple[str, ...]:
    """The keys of a binding, with the name of the parameter of `forward` instead of its index."""
    if ROOTS.get(binding.root, binding.root) != "input" or not binding.keys or not binding.keys[0].isdigit():
        return binding.keys
    names, rest, _ = forward_signature(plan.trees[binding.model].nodes[binding.module].module.forward)
    index = int(binding.keys[0])
    return (names[index], *binding.keys[1:]) if index < len(names) else (rest or "args", str(index - len(names)), *binding.keys[1:])


def _leaves(binding: Binding, wanted: tuple[str, ...], seen: Mapping[str, ReachableTensor]) -> Iterator[tuple[str, ReachableTensor]]:
    """The leaves of a binding's value; only floating ones have a gradient."""
    root = ROOTS.get(binding.root, binding.root)
    for leaf, one in seen.items():
        path = ValuePath.parse(leaf)
        keys = path.keys[: len(wanted)]
        fits = len(keys) == len(wanted) and all(name in ("*", key) for name, key in zip(wanted, keys, strict=True))
        if path.root == root and fits and one.keys <= len(wanted) and (root == binding.root or _is_floating(one.signature)):
            yield binding.root + leaf.removeprefix(root), one


def _is_floating(signature: Signature) -> bool:
    return (signature.dtype or "").startswith(FLOATING)


def _stored(binding: Binding, leaf: str, signature: Signature, calls: int) -> Predicted:
    dims = binding.probe.dims
    if dims is not None and len(dims) != signature.ndim:
        problem = f"`dims` names {len(dims)} axes, but the value is `{signature}`"
        return Predicted(binding, leaf, Signature(), 0, problem)
    signature = signature.replace(dims=dims)
    for transform in binding.probe.transforms:
        try:
            signature = transform.out(signature)
        except SignatureError as error:
            return Predicted(binding, leaf, Signature(), 0, f"transform `{transform.kind}` does not fit: {error}")
    return Predicted(binding, leaf, signature, calls)
