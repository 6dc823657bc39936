"""Ten numbers that describe a value."""

from __future__ import annotations

from typing import Literal

from probes.component import Transform, TransformFn
from probes.signature import FLOAT8, FLOATS, INTEGERS, Signature

STATS = ("count", "mean", "std", "min", "max", "l2", "zeros", "nan", "+inf", "-inf")


class Stats(Transform):
    """Replaces a value by count, mean, std, min, max, l2, zeros, nan, +inf and -inf, as float64.

    The last four are numbers of elements, `count` is the number of all of them. Mean, std, min, max and l2 (the root of the
    sum of squares) are over finite elements and NaN where there are none, but l2 of none is 0. `std` divides by the number of
    elements (population). The same value gives the same ten numbers whatever the number of threads.
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
