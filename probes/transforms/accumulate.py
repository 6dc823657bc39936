"""Accumulate statistics over an epoch without storing its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Accumulation, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError
from probes.transforms.kernels.mask import Mask, masked, require_reduced

if TYPE_CHECKING:
    from torch import Tensor

MOMENTS = ("count", "nonfinite", "mean", "variance", "min", "max")
COVARIANCE = ("count", "nonfinite", "mean")
MOST_FEATURES = 1024


class Accumulate(Accumulation):
    """Computes statistics over all values of an epoch, in float64, and stores one capture for each phase at the end of the epoch.

    Axes that are not in `dims` remain, after a new axis `stat`. `moments` are count, nonfinite, mean, variance, min and max at each
    position; `covariance` of one remaining axis is a row of counts, a row of nonfinite, a row of means, then the matrix. `count` is the
    number of finite elements (for a covariance: of samples whose elements are all finite), `nonfinite` the number left out; variance
    and covariance divide by the count (population), and are NaN where it is 0. The counts serve to merge two captures.

    For one value, the error of mean is less than 2**-40 of the standard deviation and 2**-52 of itself, that of variance less than
    2**-39 of itself; each merge adds rounding errors of float64. Counts and extremes are exact. The number of threads does not matter.
    The capture has the clock of the last step in it. Steps that failed are not in it; an epoch that was killed has no capture.
    """

    kind: Literal["accumulate"] = "accumulate"
    what: Literal["moments", "covariance"] = Field(default="moments", description="Statistics to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None,
        description="Names or numbers of the axes to reduce, in addition to time; default: all; `[]`: time alone.",
    )
    mask: Mask = None

    def out(self, signature: Signature) -> Signature:
        """Predict a new axis `stat`, then the axes that remain.

        Raises:
            SignatureError: the value is not of real numbers, there is no such axis, or not exactly one axis remains for a covariance.
        """
        signature.require(("bool", *INTEGERS, *FLOATS), "put `abs` or `cast` before it, to get real numbers")
        require_reduced(signature, self.mask, self.dims)
        rest = signature.without(self.dims)
        if self.what == "covariance":
            return _matrix(rest, self.dims)
        if rest.shape is None:
            names = ("stat", *rest.dims) if rest.dims is not None else None
            return Signature("float64", None, names, {**rest.coords, "stat": MOMENTS} if names else {})
        names = ("stat", *(rest.dims or (f"dim_{at}" for at in range(len(rest.shape)))))
        return Signature("float64", (len(MOMENTS), *rest.shape), names, {**rest.coords, "stat": MOMENTS})

    def begin(self, signature: Signature) -> TransformFn:
        """The statistics of one value; `merge` adds those of others."""
        from probes.transforms.kernels.accumulation import covariance, moments

        gone = signature.axes(self.dims) if self.dims is not None else tuple(range(signature.ndim or 0))
        kept = tuple(at for at in range(signature.ndim or 0) if at not in gone)
        kernel = moments if self.what == "moments" else covariance

        def work(tensor: Tensor) -> Tensor:
            sizes = [tensor.shape[at] for at in kept]
            rows = tensor.permute((*gone, *kept)).reshape(_count(tensor, gone), *sizes)
            return kernel(rows)

        return masked(work, self.mask, gone)

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """The statistics of both, as in Chan, Golub and LeVeque."""
        from probes.transforms.kernels.accumulation import merge

        return merge(earlier, later, covariance=self.what == "covariance")


def _count(tensor: Tensor, axes: tuple[int, ...]) -> int:
    found = 1
    for axis in axes:
        found *= tensor.shape[axis]
    return found


def _matrix(rest: Signature, dims: tuple[str | int, ...] | None) -> Signature:
    """The signature of a covariance.

    Raises:
        SignatureError: not exactly one axis remains, or it is too long.
    """
    if dims is None or (rest.ndim is not None and rest.ndim != 1):
        stays = "none" if dims is None else str(rest.ndim)
        raise SignatureError(f"a covariance needs exactly one remaining axis, and {stays} would remain; name all others in `dims`")
    size = rest.shape[0] if rest.shape is not None else None
    if (size or 0) > MOST_FEATURES:
        raise SignatureError(
            f"a covariance of {size} features is too large, the limit is {MOST_FEATURES}; put `project` or `sample` before it"
        )
    if rest.ndim is None:
        return Signature("float64")
    feature = rest.dims[0] if rest.dims is not None else "dim_0"
    labels = {} if size is None else {"stat": (*COVARIANCE, *map(str, range(size)))}
    shape = (None if size is None else len(COVARIANCE) + size, size)
    return Signature("float64", shape, ("stat", feature), {**rest.coords, **labels})
