"""Ten numbers that describe a value."""

from __future__ import annotations

from typing import Literal

from probes.component import Transform, TransformFn
from probes.signature import FLOAT8, FLOATS, INTEGERS, Signature

STATS = ("count", "mean", "std", "min", "max", "l2", "zeros", "nan", "+inf", "-inf")


class Stats(Transform):
    """Replaces a value by count, mean, std, min, max, l2, zeros, nan, +inf and -inf, as float64.

    `count` is the number of elements; `zeros`, `nan`, `+inf` and `-inf` are the numbers of such elements. Mean, std, min, max and l2
    (the root of the sum of squares) cover the finite elements. Without finite elements they are NaN, except that l2 is 0. `std`
    divides by the number of elements (population). The ten numbers do not depend on the number of threads.
    """

    kind: Literal["stats"] = "stats"

    def out(self, signature: Signature) -> Signature:
        """Always float64[stat=10].

        Raises:
            SignatureError: the value is complex, packed or quantized.
        """
        signature.require(("bool", *INTEGERS, *FLOATS, *FLOAT8), "take the real numbers you mean first, such as the magnitude with `abs`")
        return Signature("float64", (len(STATS),), ("stat",), {"stat": STATS})

    def begin(self, signature: Signature) -> TransformFn:
        """The kernel of `probes.transforms.kernels.moments`."""
        from probes.transforms.kernels.moments import moments

        return moments
