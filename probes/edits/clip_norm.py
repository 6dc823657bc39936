"""Bound the norm of a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from probes.component import Edit, EditContext, EditFn
from probes.edits.kernels.dtypes import require_floats

if TYPE_CHECKING:
    from torch import Generator, Tensor


class ClipNorm(Edit):
    """Scales a gradient down so that its 2-norm is at most `max_norm`, as `torch.nn.utils.clip_grad_norm_` does.

    The norm is computed in float64.
    """

    gradients_only: ClassVar[bool] = True

    kind: Literal["clip_norm"] = "clip_norm"
    max_norm: Annotated[float, Field(gt=0, description="largest norm")]

    def begin(self, context: EditContext) -> EditFn:
        """Only floats are taken.

        Raises:
            SignatureError: the value is of another dtype.
        """
        import torch

        require_floats(context.signature)

        def apply(value: Tensor, _generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
            # In float64, so that 1e30 does not overflow, and row by row, so that the layout in memory does not matter.
            norm = torch.linalg.vector_norm(value.reshape(-1), dtype=torch.float64)
            factor = (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
            return value * factor.to(value.dtype), {}

        return apply
