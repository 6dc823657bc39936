"""Store a value in another dtype."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import COMPLEX, FLOAT8, FLOATS, INTEGERS, Signature, SignatureError

REAL = ("bool", *INTEGERS, *FLOATS, *FLOAT8)

DtypeName = Literal[
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "complex64",
    "complex128",
]


class Cast(Transform):
    """Converts every element to another dtype with the rounding of torch; a conversion to an integer truncates."""

    kind: Literal["cast"] = "cast"
    dtype: DtypeName = Field(description="Dtype to store, as in torch without `torch.`, such as `float16`.")

    def out(self, signature: Signature) -> Signature:
        """The same axes with the new dtype.

        Raises:
            SignatureError: the value is packed or quantized, or complex where the new dtype is not.
        """
        signature.require((*REAL, *COMPLEX), "packed and quantized values are stored as their bits, without a cast")
        if signature.dtype in COMPLEX and self.dtype not in COMPLEX:
            raise SignatureError(f"`{signature.dtype}` cannot become `{self.dtype}` without losing the imaginary part; cast to complex64")
        return signature.replace(dtype=self.dtype)

    def begin(self, signature: Signature) -> TransformFn:
        """One `Tensor.to`; the result is the input itself if the dtype is already right."""
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        return lambda tensor: tensor.to(dtype)
