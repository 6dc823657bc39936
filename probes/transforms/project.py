"""Project onto random directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature, SignatureError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LARGEST = 1 << 28


class Project(Transform):
    """Projects an axis onto random directions, which approximately preserves lengths and angles; the axis is renamed to `component`.

    The directions have components of +-1 / sqrt(size), drawn from the BLAKE3 stream of seed and sizes: the same in every run,
    release and device. float16 and bfloat16 are computed and stored as float32. A component of n elements errs by at most (n + 3) u of
    the sum of their magnitudes over sqrt(size), where u is 2**-24, or 2**-53 for float64, unless the program has allowed torch to
    multiply with fewer digits; sums do not overflow inside.
    """

    kind: Literal["project"] = "project"
    size: int = Field(gt=0, description="Number of directions.")
    seed: int = Field(default=0, ge=0, description="Seed of the directions.")
    dim: str | int = Field(default=-1, description="Name or number of the axis.")

    def out(self, signature: Signature) -> Signature:
        """The axis replaced by one of `size` components.

        Raises:
            SignatureError: there is no such axis, it is too long, or the value is not of floats.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        axis = signature.axis(self.dim)
        length = signature.shape[axis] if signature.shape is not None else None
        if (length or 0) * self.size > LARGEST:
            raise SignatureError(f"{length} x {self.size} directions are more than {LARGEST} numbers; reduce the axis with `sample` first")
        return signature.with_axis(axis, "component", self.size).replace(dtype=signature.widened)

    def begin(self, signature: Signature) -> TransformFn:
        """One matrix product; the directions are drawn when a length is first seen, and kept on the device."""
        import torch

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        axis = signature.axis(self.dim)
        known: dict[tuple[int, torch.device], Tensor] = {}

        def work(tensor: Tensor) -> Tensor:
            key = (tensor.shape[axis], tensor.device)
            if key not in known:
                known[key] = directions(self.seed, key[0], self.size).to(tensor.device, dtype).mul_(self.size**-0.5)
            rows, columns = tensor.to(dtype).movedim(axis, -1), known[key]
            return (rows @ columns if _fits(rows) else _scaled_product(rows, columns)).movedim(-1, axis)

        return work


def _most(rows: Tensor) -> float:
    """A magnitude of which 2**28 can be added without overflow."""
    return float(2.0 ** (90 if rows.itemsize == 4 else 900))


def _fits(rows: Tensor) -> bool:
    """Whether no sum of the rows can overflow; on a device this is assumed false, because a check would wait for it."""
    if rows.device.type != "cpu" or not rows.numel():
        return not rows.numel()
    low, high = rows.aminmax()
    return float(low) >= -_most(rows) and float(high) <= _most(rows)


def _scaled_product(rows: Tensor, columns: Tensor) -> Tensor:
    """The product with each row scaled by a power of two, in two factors, since 2**128 alone is out of range."""
    largest = rows.abs().amax(-1, keepdim=True)
    exponent = largest.where((largest > _most(rows)) & largest.isfinite(), 0.5).frexp().exponent.to(rows.dtype)
    half = (exponent / 2).floor()
    first, second = half.exp2(), (exponent - half).exp2()
    return (rows / first / second) @ columns * first * second


def directions(seed: int, length: int, size: int) -> Tensor:
    """Signs out of the BLAKE3 stream of `probes.project:SEED:LENGTH:SIZE`, lowest bit of each byte first; a set bit is +1.

    Returns:
        (length, size) float32 on the CPU.
    """
    import numpy as np
    import torch
    from blake3 import blake3

    stream = blake3(f"probes.project:{seed}:{length}:{size}".encode()).digest(length=(length * size + 7) // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=length * size, bitorder="little")
    return torch.from_numpy(bits.astype(np.float32).reshape(length, size) * 2 - 1)
