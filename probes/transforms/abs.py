"""Store magnitudes."""

from __future__ import annotations

from typing import Literal

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, INTEGERS, REAL_OF, Signature


class Abs(Transform):
    """Replaces every element by its magnitude; the magnitude of a complex element is real."""

    kind: Literal["abs"] = "abs"

    def out(self, signature: Signature) -> Signature:
        """The same axes; a complex dtype becomes the real one of its parts.

        Raises:
            SignatureError: the value is boolean, of 8-bit floats, packed or quantized.
        """
        signature.require((*INTEGERS, *FLOATS, *REAL_OF), "put a cast before it")
        return signature.replace(dtype=REAL_OF.get(signature.dtype or "", signature.dtype))

    def begin(self, signature: Signature) -> TransformFn:
        """One `torch.abs`."""
        import torch

        return torch.abs
