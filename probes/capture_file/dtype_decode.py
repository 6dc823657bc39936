"""Convert stored bits to numpy values, exact for every dtype."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.signature import DTYPES

# exponent bits, mantissa bits, bias, and the special codes
_FLOAT8 = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}
_COMPLEX = {"complex32": "<c8", "complex64": "<c8", "complex128": "<c16"}


@cache
def bits_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype for the exact bits of a torch dtype, given by its name."""
    return np.dtype(f"<{DTYPES[dtype].numpy}")


@cache
def values_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of `values`: float32 holds, exactly, the dtypes that numpy does not have."""
    if dtype == "bfloat16" or dtype.startswith("float8"):
        return np.dtype("<f4")
    if dtype == "bool":
        return np.dtype(np.bool_)
    return np.dtype(_COMPLEX.get(dtype, bits_dtype(dtype)))


def values(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The values of stored bits.

    bfloat16 and float8 become float32 and complex32 becomes complex64, exactly; float4 and quantized integers stay bits.

    Args:
        bits: as stored: complex numbers are pairs on a last axis of 2.
        dtype: torch's name, without prefix.

    Returns:
        An array of `values_dtype`; a view of `bits` if no bit changes, else fresh memory.
    """
    if dtype == "bfloat16":
        return (bits.astype("<u4") << 16).view("<f4")
    if dtype.startswith("float8"):
        return np.take(_table(dtype), bits)
    if dtype == "complex32":
        bits = bits.astype("<f4")
    if dtype in _COMPLEX:
        return np.ascontiguousarray(bits).view(_COMPLEX[dtype])[..., 0]
    return bits.view(values_dtype(dtype))


@cache
def _table(dtype: str) -> NDArray[Any]:
    """The float32 value of each of the 256 codes of a float8 dtype."""
    codes = np.arange(256)
    if dtype == "float8_e8m0fnu":
        table = np.ldexp(1.0, codes - 127)
        table[255] = np.nan
        return table.astype("<f4")
    exponents, mantissas, bias, special = _FLOAT8[dtype]
    exponent, mantissa = codes >> mantissas & (1 << exponents) - 1, codes & (1 << mantissas) - 1
    normal = exponent > 0
    table = np.ldexp((mantissa + (normal << mantissas)).astype(float), np.where(normal, exponent, 1) - bias - mantissas)
    table = np.where(codes > 127, -table, table)
    if special == "fnuz":
        table[128] = np.nan
    elif special == "fn":
        table[[127, 255]] = np.nan
    else:
        top = exponent == (1 << exponents) - 1
        table = np.where(top, np.where(mantissa == 0, np.copysign(np.inf, table), np.nan), table)
    return table.astype("<f4")
