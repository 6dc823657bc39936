"""Numbers of two tensors of the same shape, in float64; sums as in `probes.transforms.kernels.summation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from probes.component import CompareFn


def same_shape(value: Tensor, other: Tensor) -> None:
    """Refuse tensors of other shapes: broadcasting would compare unrelated elements.

    Raises:
        ValueError: the shapes differ.
    """
    if value.shape != other.shape:
        raise ValueError(f"the value has shape {tuple(value.shape)}, and the tensor that it is compared with {tuple(other.shape)}")


def over_axes(kernel: Callable[[Tensor, Tensor], Tensor], axes: tuple[int, ...], dtype: torch.dtype) -> CompareFn:
    """A comparison over some axes of both tensors.

    Args:
        kernel: takes two matrices (n, columns) and returns (columns,) float64.
        axes: the axes that are reduced.
        dtype: of the result.
    """
    from probes.transforms.kernels.summation import as_rows

    def work(value: Tensor, other: Tensor) -> Tensor:
        same_shape(value, other)
        left = [size for axis, size in enumerate(value.shape) if axis not in axes]
        return kernel(as_rows(value, axes), as_rows(other, axes)).to(dtype).reshape(left)

    return work


def relative_error(rows: Tensor, other: Tensor) -> Tensor:
    """The norm of the difference of each column, divided by the norm of the other's; 0 if the difference is 0."""
    import torch

    from probes.transforms.kernels.summation import device_exponent, device_scaled, root_of_squares

    value, reference = rows.double(), other.double()
    if rows.dtype is torch.float64:  # differences and norms of all other dtypes are in range
        both = torch.cat([value, reference])
        exponent = device_exponent(both.where(both.isfinite(), 0.0))
        value, reference = device_scaled(value, -exponent), device_scaled(reference, -exponent)
    error, size = root_of_squares(value - reference), root_of_squares(reference)
    return (error / size).where(error != 0, error)


def cosine(rows: Tensor, other: Tensor) -> Tensor:
    """The cosine of the angle between the columns; NaN if one of the two is zero."""
    from probes.transforms.kernels.summation import root_of_squares, total

    left, right = _in_range(rows), _in_range(other)
    product: Tensor = total(left * right) / root_of_squares(left) / root_of_squares(right)
    return product.clamp(-1, 1)


def _in_range(rows: Tensor) -> Tensor:
    """The columns, each scaled by a power of two so that products of their elements neither overflow nor underflow."""
    from probes.transforms.kernels.summation import device_exponent, device_scaled

    values = rows.double()
    return device_scaled(values, -device_exponent(values.where(values.isfinite(), 0.0)))


def hsic_of(value: Tensor, other: Tensor) -> Tensor:
    """The unbiased estimates of HSIC of two sets of features of the same samples (Song et al., 2012), with linear kernels.

    It has no sums in common with `moments` and `covariance`: a covariance of features, merged over batches, gives the biased estimate, and
    takes memory with the square of the features. This one sums over pairs of samples, and its batches are averaged.

    Args:
        value: (samples, features), at least 4 samples.
        other: (samples, other features).

    Returns:
        (3,) float64: of both, of the first with itself, of the second with itself.
    """
    import torch

    first, second = (_gram(rows) for rows in (value, other))
    return torch.stack([_hsic(first, second), _hsic(first, first), _hsic(second, second)])


def _gram(rows: Tensor) -> Tensor:
    values = rows.double()
    values = values - values.mean(dim=0)  # the estimate does not depend on it, but its rounding errors do
    gram = values @ values.T
    return gram.fill_diagonal_(0)


def _hsic(first: Tensor, second: Tensor) -> Tensor:
    """The estimate, of two kernel matrices without their diagonals."""
    count = len(first)
    both = (first * second).sum()
    sums = first.sum() * second.sum() / ((count - 1) * (count - 2))
    rows = 2 * (first.sum(dim=0) * second.sum(dim=0)).sum() / (count - 2)
    found: Tensor = (both + sums - rows) / (count * (count - 3))
    return found
