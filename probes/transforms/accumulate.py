"""Statistics over a whole epoch, without keeping its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from probes.component import Accumulation, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

MOMENTS = ("count", "nonfinite", "mean", "variance", "min", "max")
COVARIANCE = ("count", "nonfinite", "mean")
WIDEST = 1024


class Accumulate(Accumulation):
    """Computes statistics over all values of an epoch, in float64, and stores one capture for each phase at the end of the epoch.

    The result has a new first axis `stat`, followed by the axes that are not in `dims`. `moments` are count, nonfinite, mean,
    variance, min and max of each remaining element. `covariance` needs one remaining axis; its rows are the counts, the numbers of
    non-finite elements, the means, and then the covariance matrix. `count` is the number of finite elements (for a covariance: of
    samples without non-finite elements), `nonfinite` the number of excluded ones. Variance and covariance divide by the count
    (population), and are NaN if the count is 0. The counts allow merging two captures.

    The clock of the capture is that of the last step that it contains. Failed steps are not included; a killed epoch has no such
    capture. Results do not depend on the number of threads.
    """

    kind: Literal["accumulate"] = "accumulate"
    what: Literal["moments", "covariance"] = Field(default="moments", description="Statistics to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None, min_length=1, description="Names or numbers of the axes to reduce, in addition to time; default: all."
    )

    def out(self, signature: Signature) -> Signature:
        """A new axis `stat`, then the axes that stay.

        Raises:
            SignatureError: the value is not of real numbers, there is no such axis, or a covariance is not of one axis.
        """
        signature.require(("bool", *INTEGERS, *FLOATS), "take the real numbers you mean first, with `abs` or `cast`")
        rest = signature.without(self.dims)
        if self.what == "covariance":
            return _matrix(rest, self.dims)
        if rest.shape is None:
            names = ("stat", *rest.dims) if rest.dims is not None else None
            return Signature("float64", None, names, {**rest.coords, "stat": MOMENTS} if names else {})
        names = ("stat", *(rest.dims or (f"dim_{at}" for at in range(len(rest.shape)))))
        return Signature("float64", (len(MOMENTS), *rest.shape), names, {**rest.coords, "stat": MOMENTS})

    def begin(self, signature: Signature) -> TransformFn:
        """The statistics of one value, which `merge` adds to those of the others."""
        from probes.transforms.kernels.accumulation import covariance, moments

        gone = signature.axes(self.dims) if self.dims is not None else tuple(range(signature.ndim or 0))
        kept = tuple(at for at in range(signature.ndim or 0) if at not in gone)
        kernel = moments if self.what == "moments" else covariance

        def work(tensor: Tensor) -> Tensor:
            sizes = [tensor.shape[at] for at in kept]
            rows = tensor.permute((*gone, *kept)).reshape(_count(tensor, gone), *sizes)
            return kernel(rows)

        return work

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """The statistics of both, after Chan, Golub and LeVeque."""
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
        SignatureError: not one axis stays, or it is too long.
    """
    if dims is None or (rest.ndim is not None and rest.ndim != 1):
        stays = "none" if dims is None else str(rest.ndim)
        raise SignatureError(f"a covariance is of one axis, and {stays} would stay; name all others in `dims`")
    size = rest.shape[0] if rest.shape is not None else None
    if (size or 0) > WIDEST:
        raise SignatureError(
            f"a covariance of {size} features is too large, at most {WIDEST} are taken; put `project` or `sample` before it"
        )
    if rest.ndim is None:
        return Signature("float64")
    feature = rest.dims[0] if rest.dims is not None else "dim_0"
    labels = {} if size is None else {"stat": (*COVARIANCE, *map(str, range(size)))}
    shape = (None if size is None else len(COVARIANCE) + size, size)
    return Signature("float64", shape, ("stat", feature), {**rest.coords, **labels})
