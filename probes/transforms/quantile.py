"""Store quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature

if TYPE_CHECKING:
    from torch import Tensor

Share = Annotated[float, Field(ge=0, le=1)]


class Quantile(Transform):
    """Replaces one axis, or the whole value, by its quantiles, interpolated linearly between neighbors.

    float16 and bfloat16 are computed and stored as float32. If the value contains NaN, or no elements, every quantile is NaN.
    """

    kind: Literal["quantile"] = "quantile"
    q: tuple[Share, ...] = Field(min_length=1, description="The quantiles, each between 0 and 1, such as [0.05, 0.5, 0.95].")
    dim: str | int | None = Field(default=None, description="Name or number of the axis; default: all elements together.")

    def out(self, signature: Signature) -> Signature:
        """An axis `quantile`, labelled with `q`.

        Raises:
            SignatureError: there is no such axis, or the value is not of floats.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        if self.dim is None:
            return Signature(signature.widened, (len(self.q),), ("quantile",), {"quantile": self.q})
        return signature.with_axis(signature.axis(self.dim), "quantile", len(self.q), self.q).replace(dtype=signature.widened)

    def begin(self, signature: Signature) -> TransformFn:
        """A sort: `torch.quantile` stops at 16 million elements."""
        import torch

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        axis = signature.axis(self.dim) if self.dim is not None else 0

        def work(tensor: Tensor) -> Tensor:
            values = (tensor if self.dim is not None else tensor.reshape(-1)).to(dtype)
            return torch.stack(_quantiles(values, self.q, axis), axis)

        return work


def _quantiles(values: Tensor, shares: tuple[float, ...], axis: int) -> list[Tensor]:
    size = values.shape[axis]
    if not size:
        return [values.sum(axis) + float("nan")] * len(shares)
    ordered = values.sort(dim=axis).values
    last = ordered.select(axis, -1)  # NaN sorts behind everything, so it shows there
    found = []
    for share in shares:
        below = int(share * (size - 1))
        low, high = ordered.select(axis, below), ordered.select(axis, min(below + 1, size - 1))
        found.append(low.lerp(high, share * (size - 1) - below).where(~last.isnan(), float("nan")))
    return found
