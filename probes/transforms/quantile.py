"""Store quantiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import FLOATS, Signature

if TYPE_CHECKING:
    from torch import Tensor

Share = Annotated[float, Field(ge=0, le=1)]


class Quantile(Transform):
    """Replaces an axis, several axes, or the whole value by its quantiles, interpolated linearly between neighbors.

    With `dim` the axis is called `quantile` and stays in place; with `dims` a new axis `quantile` comes first, then the axes that
    remain. float16 and bfloat16 are stored as float32. Neighbors and weights are those of float64; the result is rounded once, and
    adds an error of at most 2**-51 of the larger neighbor. A neighbor of weight 0 does not count, even if it is infinite. With a NaN, or
    without elements, every quantile is NaN; so is one between -inf and +inf.
    """

    kind: Literal["quantile"] = "quantile"
    q: tuple[Share, ...] = Field(min_length=1, description="The quantiles, each between 0 and 1, such as [0.05, 0.5, 0.95].")
    dim: str | int | None = Field(default=None, description="Name or number of the axis; default: all elements together.")
    dims: tuple[str | int, ...] | None = Field(default=None, min_length=1, description="Names or numbers of several axes to reduce.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.dim is not None and self.dims is not None:
            raise PydanticCustomError("no_effect", "`quantile` takes `dim` or `dims`, not both", {})
        twice = next((share for at, share in enumerate(self.q) if share in self.q[:at]), None)
        if twice is not None:
            raise PydanticCustomError("no_effect", "`q` has {share} twice", {"share": twice, "hint": "remove one of them"})
        return self

    def out(self, signature: Signature) -> Signature:
        """Predict an axis `quantile`, labelled with `q`.

        Raises:
            SignatureError: there is no such axis, or the value is not of floats.
        """
        signature.require(FLOATS, "put a cast to float32 before it")
        if self.dim is not None:
            return signature.with_axis(signature.axis(self.dim), "quantile", len(self.q), self.q).replace(dtype=signature.widened)
        return signature.without(self.dims).with_first("quantile", len(self.q), self.q).replace(dtype=signature.widened)

    def begin(self, signature: Signature) -> TransformFn:
        """A sort, because `torch.quantile` takes at most 16 million elements."""
        import torch

        from probes.transforms.kernels.summation import as_rows

        dtype: torch.dtype = getattr(torch, self.out(signature).dtype or "")
        chosen = (self.dim,) if self.dim is not None else self.dims
        axes = signature.axes(chosen if chosen is not None else range(signature.ndim or 0))
        place = axes[0] if self.dim is not None else 0

        def work(tensor: Tensor) -> Tensor:
            left = [size for axis, size in enumerate(tensor.shape) if axis not in axes]
            found = torch.stack(_quantiles(as_rows(tensor, axes), self.q)).to(dtype)
            return found.reshape(len(self.q), *left).movedim(0, place)

        return work


def _quantiles(rows: Tensor, shares: tuple[float, ...]) -> list[Tensor]:
    """The quantiles of each column, as float64."""
    size = rows.shape[0]
    if not size:
        return [rows.double().sum(0) + float("nan")] * len(shares)
    ordered = rows.sort(dim=0).values
    known = ~ordered[-1].isnan()  # NaN is sorted last
    found = []
    for share in shares:
        below = int(share * (size - 1))
        weight = share * (size - 1) - below
        low, high = ordered[below].double(), ordered[min(below + 1, size - 1)].double()
        between = low if weight == 0 else (low * (1 - weight) + high * weight).where(low != high, low)
        found.append(between.where(known, float("nan")))
    return found
