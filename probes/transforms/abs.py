"""Store magnitudes."""

from __future__ import annotations

from typing import Literal

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, REAL_OF, Signature

UNSIGNED = ("uint16", "uint32", "uint64")


class Abs(Transform):
    """Replaces every element by its magnitude; the magnitude of a complex element is real.

    The smallest number of a signed integer dtype has no positive counterpart and stays as it is: -128 of int8.
    """

    kind: Literal["abs"] = "abs"

    def out(self, signature: Signature) -> Signature:
        """Predict the same axes; a complex dtype becomes the real dtype of its parts.

        Raises:
            SignatureError: the value is boolean, of 8-bit floats, packed or quantized.
        """
        signature.require((*INTEGERS, *FLOATS, *REAL_OF), "put a cast before it")
        return signature.replace(dtype=REAL_OF.get(signature.dtype or "", signature.dtype))

    def begin(self, signature: Signature) -> TransformFn:
        """`torch.abs`, which takes no unsigned integers of more than 8 bits; those are magnitudes already."""
        import torch

        return torch.abs if signature.dtype not in UNSIGNED else lambda tensor: tensor
