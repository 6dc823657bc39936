"""Mix each sample with another of the batch, as in manifold mixup (Verma et al., 2019, arXiv:1806.05236)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import EditContext, EditFn
from probes.edits.kernels.dtypes import require_floats
from probes.edits.kernels.factor import GivenTensor
from probes.edits.kernels.position import PlacedEdit
from probes.signature import SignatureError

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Mixup(PlacedEdit):
    """Replaces x by lam * x + (1 - lam) * x[permutation] along the batch axis.

    The weight is given, or drawn per call from Beta(alpha, alpha). Weight and permutation are recorded, and the loss can
    read them with `run.edit(name)`.
    """

    random: ClassVar[bool] = True
    draws_alike: ClassVar[bool] = True  # the partners of a sample are the same in every layer, as one loss needs them

    kind: Literal["mixup"] = "mixup"
    lam: Annotated[float | None, Field(ge=0, le=1, description="weight of each sample; 1 - lam is the weight of its partner")] = None
    alpha: Annotated[float | None, Field(gt=0, description="parameter of the Beta distribution of the weight")] = None
    permutation: Annotated[
        GivenTensor | None, Field(description="the partner of each sample, {given: NAME}: a permutation of the batch; default: drawn")
    ] = None
    seed: Annotated[int, Field(ge=0, description="seed of the generator of this edit")] = 0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.lam is None) == (self.alpha is None):
            raise PydanticCustomError("mixup", "`mixup` takes `lam` or `alpha`: exactly one of the two", {})
        return self

    def begin(self, context: EditContext) -> EditFn:
        """Find the batch axis: the axis named `batch`, else the first.

        Raises:
            SignatureError: the value has no axes, or is not of floats.
        """
        import torch

        signature = context.signature
        if not signature.ndim:
            raise SignatureError("a value without axes has no batch to mix")
        require_floats(signature)
        axis = signature.axis("batch") if signature.dims and "batch" in signature.dims else 0

        def partners(count: int, generator: Generator) -> Tensor:
            if self.permutation is None:
                return torch.randperm(count, generator=generator)
            found = context.given[self.permutation["given"]]
            whole = not (found.is_floating_point() or found.is_complex() or found.dtype is torch.bool)
            if not whole or found.ndim != 1 or not torch.equal(found.long().sort().values, torch.arange(count)):
                raise SignatureError(f"`{self.permutation['given']}` is not a permutation of the {count} samples of the batch")
            return found.long()

        def apply(value: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            lam = self.lam if self.lam is not None else _beta(self.alpha or 1.0, generator)
            permutation = partners(value.shape[axis], generator)
            other = value.index_select(axis, permutation.to(value.device))
            drawn = {"permutation": permutation, "lam": torch.tensor(lam, dtype=torch.float64)}
            return lam * value + (1.0 - lam) * other, drawn

        return apply


def _beta(alpha: float, generator: Generator) -> float:
    """A draw from Beta(alpha, alpha) as X / (X + Y) of two Gamma(alpha) draws."""
    import torch

    x, y = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator).tolist()
    return float(x / (x + y)) if x + y > 0 else 0.5
