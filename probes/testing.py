"""What every transform has to keep to, as one call for the authors of kinds: `check_transform(MyTransform(...))`."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
import torch
import yaml
from torch import Tensor

from probes.component import Accumulation, Component, Transform
from probes.signature import Signature, SignatureError

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (7,), (3, 5), (2, 0), (2, 3, 4), (2, 3, 4, 4))
DTYPES = ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64")


def check_component(component: Component) -> None:
    """Check what every component keeps to: it survives YAML and pickle, cannot be changed, and describes its fields.

    Raises:
        AssertionError: it does not; the message says in what.
    """
    cls = type(component)
    written = component.model_dump(mode="json", by_alias=True, exclude_none=True)
    read = cls.model_validate(yaml.safe_load(yaml.safe_dump(written)))
    assert read == component, f"`{component.kind}` comes back from YAML as {read!r}, but was {component!r}"
    assert pickle.loads(pickle.dumps(component)) == component, f"`{component.kind}` does not survive pickle"
    assert cls.model_config.get("frozen"), f"`{cls.__name__}` can be changed; a component is frozen"
    assert cls.model_config.get("extra") == "forbid", f"`{cls.__name__}` lets unknown keys pass"
    assert cls.__doc__, f"`{cls.__name__}` has no docstring; its first sentence is what the reference says"
    for name, field in cls.model_fields.items():
        assert name == "kind" or field.description, f"field `{name}` of `{component.kind}` has no description"
    assert component.kind == cls.model_fields["kind"].default, f"`{cls.__name__}` has no default for `kind`"


def check_transform(
    transform: Transform,
    *,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    dtypes: Sequence[str] = DTYPES,
    dims: tuple[str, ...] | None = None,
) -> tuple[Signature, ...]:
    """Check that a transform does what its signature predicts, and nothing besides.

    For every shape and dtype the transform either refuses by `SignatureError` in `out` and in `begin`, or: its result has the
    predicted dtype, shape, names and labels, also where parts of the input's signature are unknown; the result is the same
    twice and in inference mode; the input and the global random generators are untouched; and the work begun for one size
    takes another of the same rank.

    Args:
        transform: the transform, with the settings to check.
        shapes: shapes to try; those it refuses are passed over.
        dtypes: names of the dtypes to try; those it refuses are passed over.
        dims: names of the axes for shapes of as many axes; other shapes are tried without names and as `a`, `b`, `c`.

    Returns:
        The signatures that it took; never empty.

    Raises:
        AssertionError: the transform breaks a rule; the message says which, and for what value.
    """
    check_component(transform)
    taken = []
    for dtype, shape in product(dtypes, shapes):
        for names in _names(len(shape), dims):
            signature = Signature(dtype, shape, names)
            if _takes(transform, signature):
                _check_value(transform, signature)
                taken.append(signature)
    assert taken, f"`{transform.kind}` took none of the values; give `shapes` and `dims` that fit its settings"
    return tuple(taken)


def example(signature: Signature, seed: int = 0) -> Tensor:
    """A tensor of a signature whose parts are all known, with values between about -9 and 9; global generators are untouched."""
    assert signature.dtype is not None
    assert signature.shape is not None
    sizes = [size for size in signature.shape if size is not None]
    values = torch.randn(sizes, generator=torch.Generator("cpu").manual_seed(seed), device="cpu") * 3
    dtype: torch.dtype = getattr(torch, signature.dtype)
    return (values > 0 if dtype is torch.bool else values.abs() if not dtype.is_signed else values).to(dtype)


def signature_of(tensor: Tensor, predicted: Signature) -> Signature:
    """What a result really is; names and labels cannot be seen in a tensor, so they are the predicted ones."""
    return Signature(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), predicted.dims, predicted.coords)


def _names(ndim: int, dims: tuple[str, ...] | None) -> Iterator[tuple[str, ...] | None]:
    if dims is not None and len(dims) == ndim:
        yield dims
    else:
        yield from (None, tuple("abcdefgh"[:ndim]))


def _takes(transform: Transform, signature: Signature) -> bool:
    """Whether `out` takes the signature; if not, `begin` has to refuse it too."""
    refusal = _refusal(partial(transform.out, signature))
    if refusal is None:
        return True
    assert refusal, f"`{transform.kind}` refuses {signature} without saying why"
    begun = _refusal(partial(transform.begin, signature))
    assert begun is not None, f"`out` of `{transform.kind}` refuses {signature}, but `begin` takes it"
    return False


def _refusal(question: Callable[[], object]) -> str | None:
    """The message of a SignatureError, or None where there is none."""
    try:
        question()
    except SignatureError as error:
        return str(error)
    return None


def _check_value(transform: Transform, signature: Signature) -> None:
    value = example(signature)
    result = _untouched(transform, value, signature)
    predicted = transform.out(signature)
    _check_labels(transform, predicted)
    real = signature_of(result, predicted)
    assert real == predicted, f"`{transform.kind}` of {signature} was predicted to be {predicted}, but is {real}"
    _check_unknown(transform, signature, real)
    again = transform.begin(signature)(value)
    with torch.inference_mode():
        inferred = transform.begin(signature)(value.clone())
    for other, when in ((again, "the second time"), (inferred, "in inference mode")):
        assert _bits(other) == _bits(result), f"`{transform.kind}` of {signature} is another {when}"
    assert not result.requires_grad, f"the result of `{transform.kind}` requires grad"
    _check_other_sizes(transform, signature)
    if isinstance(transform, Accumulation):
        _check_merge(transform, signature)


def _check_merge(transform: Accumulation, signature: Signature) -> None:
    """Results merge to one of the same form, the same each time, whatever the grouping, and are not written to."""
    work = transform.begin(signature)
    parts = [work(example(signature, seed)).clone() for seed in range(3)]
    bits = [_bits(part) for part in parts]
    left = transform.merge(transform.merge(parts[0], parts[1]), parts[2])
    right = transform.merge(parts[0], transform.merge(parts[1], parts[2]))
    name = f"`merge` of `{transform.kind}` for {signature}"
    assert [_bits(part) for part in parts] == bits, f"{name} writes to what it is given"
    for result in (left, right):
        assert (result.dtype, result.shape) == (parts[0].dtype, parts[0].shape), f"{name} changes dtype or shape"
    again = transform.merge(transform.merge(parts[0], parts[1]), parts[2])
    assert _bits(again) == _bits(left), f"{name} is another the second time"
    close = torch.allclose(left.double(), right.double(), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert close, f"{name} depends on how the parts are grouped: {left} is not {right}"


def _untouched(transform: Transform, value: Tensor, signature: Signature) -> Tensor:
    """The result, after a look at what must not have changed."""
    bits, version, generators = _bits(value), value._version, _generators()
    result = transform.begin(signature)(value)
    assert _generators() == generators, f"`{transform.kind}` draws from a global random generator"
    assert value._version == version, f"`{transform.kind}` writes to its input"
    assert _bits(value) == bits, f"`{transform.kind}` writes to its input"
    return result


def _check_labels(transform: Transform, predicted: Signature) -> None:
    for name, labels in predicted.coords.items():
        assert predicted.dims is not None, f"`{transform.kind}` labels `{name}`, but names no axes"
        assert name in predicted.dims, f"`{transform.kind}` labels `{name}`, which is none of {predicted.dims}"
        size = (predicted.shape or ())[predicted.dims.index(name)]
        assert len(labels) == size, f"`{transform.kind}` has {len(labels)} labels for `{name}` of size {size}"


def _check_unknown(transform: Transform, signature: Signature, real: Signature) -> None:
    """Less known of the input gives a prediction that says less, but nothing else."""
    shape = signature.shape or ()
    for dtype, sizes in product((None, signature.dtype), (None, (None,) * len(shape), (*shape[:-1], None) if shape else ())):
        known = Signature(dtype, sizes, signature.dims)
        refusal = _refusal(partial(transform.out, known))
        assert refusal is None, f"`{transform.kind}` takes {signature}, but refuses {known}: {refusal}"
        predicted = transform.out(known)
        assert _fits(predicted, real), f"`{transform.kind}` of {known} was predicted to be {predicted}, but is {real}"


def _fits(predicted: Signature, real: Signature) -> bool:
    """Whether nothing that is predicted contradicts what is."""
    sizes = predicted.shape is None or (
        len(predicted.shape) == len(real.shape or ())
        and all(p in (None, r) for p, r in zip(predicted.shape, real.shape or (), strict=True))
    )
    return sizes and predicted.dtype in (None, real.dtype) and predicted.dims in (None, real.dims)


def _check_other_sizes(transform: Transform, signature: Signature) -> None:
    """The work begun for one size takes another, as in the last batch of an epoch."""
    work = transform.begin(signature)
    shape = tuple(size and size * 2 for size in signature.shape or ())
    larger = signature.replace(shape=shape)
    if _takes(transform, larger):
        predicted = transform.out(larger)
        real = signature_of(work(example(larger, seed=1)), predicted)
        assert real == predicted, f"`{transform.kind}` begun for {signature} made {real} of {larger}, not {predicted}"


def _bits(tensor: Tensor) -> bytes:
    """The bytes of the elements; NaN equals itself in them."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _generators() -> tuple[object, ...]:
    """The state of every global random generator."""
    return random.getstate(), str(np.random.get_state()), torch.get_rng_state().numpy().tobytes()
