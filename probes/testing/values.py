"""Values to test with, and states that must not change while they are used."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from probes.signature import Signature, SignatureError

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (7,), (3, 5), (2, 0), (2, 3, 4), (2, 3, 4, 4))
DTYPES = ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64")


def example(signature: Signature, seed: int = 0) -> Tensor:
    """A tensor of a signature whose parts are all known, with values between about -9 and 9; does not use global generators."""
    assert signature.dtype is not None
    assert signature.shape is not None
    sizes = [size for size in signature.shape if size is not None]
    values = torch.randn(sizes, generator=torch.Generator("cpu").manual_seed(seed), device="cpu") * 3
    dtype: torch.dtype = getattr(torch, signature.dtype)
    return (values > 0 if dtype is torch.bool else values.abs() if not dtype.is_signed else values).to(dtype)


def signatures(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str], dims: tuple[str, ...] | None) -> Iterator[Signature]:
    """Every dtype with every shape, each with the names of axes to try."""
    for dtype, shape in product(dtypes, shapes):
        for names in _names_of_axes(len(shape), dims):
            yield Signature(dtype, shape, names)


def _names_of_axes(ndim: int, dims: tuple[str, ...] | None) -> Iterator[tuple[str, ...] | None]:
    """The names to try for a number of axes: the given ones if they fit, else none and `a`, `b`, `c`."""
    if dims is not None and len(dims) == ndim:
        yield dims
    else:
        yield from (None, tuple("abcdefgh"[:ndim]))


def refusal(question: Callable[[], object]) -> str | None:
    """The message of a SignatureError, or None if absent."""
    try:
        question()
    except SignatureError as error:
        return str(error)
    return None


def bits(tensor: Tensor) -> bytes:
    """The bytes of the elements; NaN equals itself in them."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def generators() -> tuple[object, ...]:
    """The state of every global random generator."""
    state = np.random.get_state(legacy=False)
    of_numpy = state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"], state["gauss"]
    return random.getstate(), of_numpy, torch.get_rng_state().numpy().tobytes()
