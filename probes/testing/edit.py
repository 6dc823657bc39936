"""Rules for edits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Generator, Tensor

from probes.component import Edit, EditContext, EditFn
from probes.signature import Signature
from probes.testing.component import check_component
from probes.testing.values import DTYPES, SHAPES, bits, example, generators, refusal, signatures


def check_edit(
    edit: Edit,
    *,
    source: Tensor | None = None,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtypes: Sequence[str] = DTYPES,
    dims: tuple[str, ...] | None = None,
) -> tuple[Signature, ...]:
    """Check that an edit replaces a value by another of the same form, and changes nothing else.

    For every shape and dtype the edit raises a `SignatureError` with a reason, in `begin` or for the value, or: the result has
    the shape, dtype and device of the value; the value and the global random generators are untouched; the same generator
    state gives the same result and the same draws, and an edit that is not `random` leaves the generator as it was; a value
    that is not contiguous gives the same result; what was drawn is tensors by name; a backward through the result runs; and
    the function that was begun for one size takes or refuses another of the same rank.

    Args:
        edit: the edit, with the settings to check.
        source: the tensor that `from` names, if the edit has one.
        shapes: shapes to try; those it refuses are skipped.
        dtypes: names of the dtypes to try; those it refuses are skipped.
        dims: names of the axes for shapes of as many axes; other shapes are tried without names and as `a`, `b`, `c`.

    Returns:
        The signatures that it takes; never empty.

    Raises:
        AssertionError: the edit breaks a rule; the message says which, and for what value.
    """
    check_component(edit)
    taken = []
    for signature in signatures(shapes, dtypes, dims):
        if _takes(edit, signature, source):
            _check_value(edit, signature, source)
            taken.append(signature)
    assert taken, f"`{edit.kind}` takes none of the values; give `shapes`, `dims` and `source` that fit its settings"
    return tuple(taken)


def _takes(edit: Edit, signature: Signature, source: Tensor | None) -> bool:
    reason = refusal(lambda: edit.begin(EditContext(signature, source))(example(signature), _seeded()))
    assert reason is None or reason, f"`{edit.kind}` refuses {signature} without a reason"
    return reason is None


def _seeded() -> Generator:
    return torch.Generator("cpu").manual_seed(7)


def _check_value(edit: Edit, signature: Signature, source: Tensor | None) -> None:
    apply = edit.begin(EditContext(signature, source))
    value, generator, name = example(signature), _seeded(), f"`{edit.kind}` of {signature}"
    before, version, state, own = bits(value), value._version, generators(), bits(generator.get_state())
    result, drawn = apply(value, generator)
    assert generators() == state, f"`{edit.kind}` draws from a global random generator"
    assert (value._version, bits(value)) == (version, before), f"`{edit.kind}` writes to its input"
    assert edit.random or bits(generator.get_state()) == own, f"`{edit.kind}` draws from its generator, but is not `random`"
    _check_form(name, value, result, drawn)
    _check_repeats(name, apply, value, result, drawn)
    if value.is_floating_point():
        _check_backward(name, apply, value)
    _check_other_size(edit, apply, signature, source)


def _check_form(name: str, value: Tensor, result: object, drawn: object) -> None:
    assert isinstance(result, Tensor), f"{name} returns a {type(result).__name__} instead of a tensor"
    for part in ("dtype", "shape", "device"):
        was, now = getattr(value, part), getattr(result, part)
        assert was == now, f"{name} changes the {part} from {was} to {now}"
    sound = isinstance(drawn, dict) and all(isinstance(key, str) and isinstance(item, Tensor) for key, item in drawn.items())
    assert sound, f"{name} returns {drawn!r} as what was drawn; it must be tensors by name"


def _check_repeats(name: str, apply: EditFn, value: Tensor, result: Tensor, drawn: dict[str, Tensor]) -> None:
    again, redrawn = apply(value, _seeded())
    assert bits(again) == bits(result), f"{name} differs the second time, with a generator in the same state"
    same = {key: bits(item) for key, item in drawn.items()} == {key: bits(item) for key, item in redrawn.items()}
    assert same, f"{name} draws other numbers the second time, with a generator in the same state"
    if value.ndim > 1:
        swapped = value.transpose(0, 1).contiguous().transpose(0, 1)
        assert bits(apply(swapped, _seeded())[0]) == bits(result), f"{name} differs where the value is not contiguous"


def _check_backward(name: str, apply: EditFn, value: Tensor) -> None:
    leaf = value.clone().requires_grad_()
    result, _ = apply(leaf.clone(), _seeded())
    assert result.requires_grad, f"{name} is not in the graph of its input: modules before it would get no gradient"
    result.double().sum().backward()  # type: ignore[no-untyped-call]  # torch's stubs leave it untyped
    assert leaf.grad is not None, f"{name} is in the graph of another tensor than its input"


def _check_other_size(edit: Edit, apply: EditFn, signature: Signature, source: Tensor | None) -> None:
    """Check that the function that was begun for one size takes another, as in the last batch of an epoch, or refuses it with a reason."""
    larger = signature.replace(shape=tuple(size and size * 2 for size in signature.shape or ()))
    value = example(larger, seed=1)
    if refusal(partial(apply, value, _seeded())) is None:
        fresh = edit.begin(EditContext(larger, source))(value, _seeded())[0]
        result = apply(value, _seeded())[0]
        assert bits(result) == bits(fresh), f"`{edit.kind}` begun for {signature} gives another result for {larger} than if begun for it"
