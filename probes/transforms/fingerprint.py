"""Store a digest instead of the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from probes.component import Transform, TransformFn
from probes.signature import COMPLEX, DTYPES, Signature

if TYPE_CHECKING:
    from torch import Tensor

BYTES = tuple(name for name in DTYPES if "qint" not in name and "quint" not in name and name != COMPLEX[0])


class Fingerprint(Transform):
    """Replaces a value by the BLAKE3 digest of its bytes in row-major order: 32 bytes, equal for values with equal bytes.

    Dtype and shape are not part of the digest.
    """

    kind: Literal["fingerprint"] = "fingerprint"

    def out(self, signature: Signature) -> Signature:
        """Always uint8[byte=32].

        Raises:
            SignatureError: the value is quantized, or of half-precision complex numbers.
        """
        signature.require(BYTES, "such a value has no plain bytes")
        return Signature("uint8", (32,), ("byte",))

    def begin(self, signature: Signature) -> TransformFn:
        """Hash on the host; on an accelerator this waits for the value."""
        import torch
        from blake3 import blake3

        def work(tensor: Tensor) -> Tensor:
            dense = tensor.resolve_conj().resolve_neg().contiguous().cpu()
            flat = dense.as_strided((dense.numel(),), (1,))  # also the stride of an axis of size 1, which `view` needs to be 1
            content = flat.view(torch.uint8).numpy().data
            return torch.frombuffer(bytearray(blake3(content).digest()), dtype=torch.uint8).to(tensor.device)

        return work
