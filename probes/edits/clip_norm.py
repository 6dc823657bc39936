"""Bound the norm of a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from probes.component import Edit, EditContext, EditFn

if TYPE_CHECKING:
    from torch import Generator, Tensor


class ClipNorm(Edit):
    """Scales a gradient down so that its 2-norm is at most `max_norm`, as `torch.nn.utils.clip_grad_norm_` does."""

    gradients_only: ClassVar[bool] = True

    kind: Literal["clip_norm"] = "clip_norm"
    max_norm: Annotated[float, Field(gt=0, description="largest norm")]

    def begin(self, context: EditContext) -> EditFn:
        """Nothing depends on the signature."""
        import torch

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            norm = torch.linalg.vector_norm(value, dtype=torch.float32)
            factor = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
            return value * factor.to(value.dtype), {}

        return apply
