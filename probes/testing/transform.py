"""Rules for transforms."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import torch
from torch import Tensor

from probes.component import Accumulation, TensorComparison, Transform, TransformFn
from probes.signature import Coord, Signature
from probes.testing.component import check_component
from probes.testing.values import DTYPES, SHAPES, bits, example, generators, refusal, signatures


def check_transform(
    transform: Transform,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtypes: Sequence[str] = DTYPES,
    dims: tuple[str, ...] | None = None,
) -> tuple[Signature, ...]:
    """Check that a transform does what its signature predicts, and nothing else.

    For every shape and dtype `out` raises a `SignatureError` with a reason, or: the result has the predicted dtype, shape, names
    and labels, also where parts of the input's signature are unknown, or one of its axes has the name of a new one; the result is
    the same the second time, in inference mode and after it; a value that is not contiguous is taken; the input and the global
    random generators are untouched; and the function that was begun for one size takes another of the same rank.

    Args:
        transform: the transform, with the settings to check.
        shapes: shapes to try; those it refuses are skipped.
        dtypes: names of the dtypes to try; those it refuses are skipped.
        dims: names of the axes for shapes of as many axes; other shapes are tried without names and as `a`, `b`, `c`.

    Returns:
        The signatures that it takes; never empty.

    Raises:
        AssertionError: the transform breaks a rule; the message says which, and for what value.
    """
    check_component(transform)
    taken = [signature for signature in signatures(shapes, dtypes, dims) if _takes(transform, signature)]
    results = [(signature, _check_value(transform, signature)) for signature in taken]
    with ThreadPoolExecutor(1) as thread:  # a fresh one, as that of a server: inference mode is the first that it knows
        thread.submit(_check_inference, transform, results).result()
    assert taken, f"`{transform.kind}` takes none of the values; give `shapes` and `dims` that fit its settings"
    return tuple(taken)


def begun(transform: Transform, signature: Signature) -> TransformFn:
    """The function of a transform; that of a comparison compares with an example of the same shape."""
    if not isinstance(transform, TensorComparison):
        return transform.begin(signature)
    compare = transform.compare(signature)
    return lambda value: compare(value, example(signature.replace(shape=tuple(value.shape)), seed=99))


def signature_of(tensor: Tensor, predicted: Signature) -> Signature:
    """The signature of a result; a tensor has no names and labels, so they are the predicted ones."""
    return Signature(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), predicted.dims, predicted.coords)


def _takes(transform: Transform, signature: Signature) -> bool:
    """Whether `out` takes the signature."""
    reason = refusal(partial(transform.out, signature))
    assert reason is None or reason, f"`{transform.kind}` refuses {signature} without a reason"
    return reason is None


def _check_value(transform: Transform, signature: Signature) -> bytes:
    """Check a value, and return the bytes of its result."""
    value = example(signature)
    result = _untouched(transform, value, signature)
    predicted = transform.out(signature)
    _check_labels(transform, predicted)
    real = signature_of(result, predicted)
    assert real == predicted, f"`{transform.kind}` of {signature} was predicted to be {predicted}, but is {real}"
    _check_names(transform, signature, predicted)
    _check_unknown(transform, signature, real)
    again = begun(transform, signature)(value)
    expected = bits(result)
    assert bits(again) == expected, f"`{transform.kind}` of {signature} differs the second time"
    _check_strided(transform, value, signature, result)
    assert not result.requires_grad, f"the result of `{transform.kind}` requires grad"
    _check_other_sizes(transform, signature)
    if isinstance(transform, Accumulation):
        _check_merge(transform, signature)
    return expected


def _check_inference(transform: Transform, results: Sequence[tuple[Signature, bytes]]) -> None:
    """Check the results in inference mode, and then without it: what a transform keeps must serve in both."""
    for signature, result in results:
        value = example(signature)
        with torch.inference_mode():
            work = begun(transform, signature)
            inferred = work(value.clone())
        for other, when in ((inferred, "in inference mode"), (work(value), "after inference mode")):
            assert bits(other) == result, f"`{transform.kind}` of {signature} differs {when}"


def _check_strided(transform: Transform, value: Tensor, signature: Signature, result: Tensor) -> None:
    """Check a value that is not contiguous, which may give another rounding of a sum, and nothing else."""
    found = begun(transform, signature)(torch.stack((value, value), -1)[..., 0])
    assert (found.dtype, found.shape) == (result.dtype, result.shape), f"`{transform.kind}` of {signature} differs if it is not contiguous"


def _check_merge(transform: Accumulation, signature: Signature) -> None:
    """Check `merge`: it keeps dtype and shape, is repeatable and associative, and does not write to its arguments."""
    work = begun(transform, signature)
    parts = [work(example(signature, seed)).clone() for seed in range(3)]
    before = [bits(part) for part in parts]
    left = transform.merge(transform.merge(parts[0], parts[1]), parts[2])
    right = transform.merge(parts[0], transform.merge(parts[1], parts[2]))
    name = f"`merge` of `{transform.kind}` for {signature}"
    assert [bits(part) for part in parts] == before, f"{name} writes to what it is given"
    for result in (left, right):
        assert (result.dtype, result.shape) == (parts[0].dtype, parts[0].shape), f"{name} changes dtype or shape"
    again = transform.merge(transform.merge(parts[0], parts[1]), parts[2])
    assert bits(again) == bits(left), f"{name} differs the second time"
    close = torch.allclose(left.double(), right.double(), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert close, f"{name} depends on how the parts are grouped: {left} is not {right}"


def _untouched(transform: Transform, value: Tensor, signature: Signature) -> Tensor:
    """The result, after a check that input and generators are unchanged."""
    before, version, state = bits(value), value._version, generators()
    result = begun(transform, signature)(value)
    assert generators() == state, f"`{transform.kind}` draws from a global random generator"
    assert value._version == version, f"`{transform.kind}` writes to its input"
    assert bits(value) == before, f"`{transform.kind}` writes to its input"
    return result


def _check_labels(transform: Transform, predicted: Signature) -> None:
    for name, labels in predicted.coords.items():
        assert predicted.dims is not None, f"`{transform.kind}` labels `{name}`, but names no axes"
        assert name in predicted.dims, f"`{transform.kind}` labels `{name}`, which is not one of {predicted.dims}"
        size = (predicted.shape or ())[predicted.dims.index(name)]
        assert len(labels) == size, f"`{transform.kind}` has {len(labels)} labels for `{name}` of size {size}"


def _check_names(transform: Transform, signature: Signature, predicted: Signature) -> None:
    """Check that each axis keeps its labels where an axis of the value has the name of a new one."""
    dims = signature.dims or ()
    for name, axis in product((name for name in predicted.dims or () if name not in dims), range(len(dims))):
        same = signature.replace(dims=(*dims[:axis], name, *dims[axis + 1 :]))
        if _takes(transform, same):
            found = transform.out(same)
            _check_labels(transform, found)
            assert _labels(found) == _labels(predicted), f"`{transform.kind}` labels another axis if the value has an axis `{name}`"


def _labels(signature: Signature) -> list[Coord | None]:
    """The labels of each axis."""
    return [signature.coords.get(name) for name in signature.dims or ()]


def _check_unknown(transform: Transform, signature: Signature, real: Signature) -> None:
    """Check partial signatures: if less is known about the input, the prediction says less, and never something else."""
    shape = signature.shape or ()
    for dtype, sizes in product((None, signature.dtype), (None, (None,) * len(shape), (*shape[:-1], None) if shape else ())):
        known = Signature(dtype, sizes, signature.dims)
        reason = refusal(partial(transform.out, known))
        assert reason is None, f"`{transform.kind}` takes {signature}, but refuses {known}: {reason}"
        predicted = transform.out(known)
        assert _fits(predicted, real), f"`{transform.kind}` of {known} was predicted to be {predicted}, but is {real}"


def _fits(predicted: Signature, real: Signature) -> bool:
    """Whether the prediction does not contradict the result."""
    sizes = predicted.shape is None or (
        len(predicted.shape) == len(real.shape or ())
        and all(p in (None, r) for p, r in zip(predicted.shape, real.shape or (), strict=True))
    )
    return sizes and predicted.dtype in (None, real.dtype) and predicted.dims in (None, real.dims)


def _check_other_sizes(transform: Transform, signature: Signature) -> None:
    """Check that the function that was begun for one size takes another, as in the last batch of an epoch."""
    work = begun(transform, signature)
    shape = tuple(size and size * 2 for size in signature.shape or ())
    larger = signature.replace(shape=shape)
    if _takes(transform, larger):
        predicted = transform.out(larger)
        real = signature_of(work(example(larger, seed=1)), predicted)
        assert real == predicted, f"`{transform.kind}` begun for {signature} returns {real} for {larger}, not {predicted}"
