"""Store ten numbers that describe a value."""

from __future__ import annotations

from typing import Literal

from probes.component import Transform, TransformFn
from probes.signature import FLOAT8, FLOATS, INTEGERS, Signature
from probes.transforms.kernels.mask import Mask, masked

STATS = ("count", "mean", "std", "min", "max", "l2", "zeros", "nan", "+inf", "-inf")


class Stats(Transform):
    """Replaces a value by count, mean, std, min, max, l2, zeros, nan, +inf and -inf, as float64.

    `zeros`, `nan`, `+inf` and `-inf` are numbers of elements, `count` is the number of all of them. Mean, std, min, max and l2 (the root
    of the sum of squares) are over finite elements, and NaN if there are none, except l2, which is then 0. `std` divides by the number of
    elements (population). The result does not depend on the number of threads.

    Counts, min and max are exact. In float32, float16 and bfloat16 with 256 or more elements, mean errs by less than 2**-18 of std,
    std by less than 2**-17 of itself and l2 by less than 2**-18 of itself. In other dtypes, on other devices and with fewer elements,
    these are 2**-40, and mean errs by 2**-52 of itself too. Nothing overflows or underflows inside.
    """

    kind: Literal["stats"] = "stats"
    mask: Mask = None

    def out(self, signature: Signature) -> Signature:
        """Always float64[stat=10].

        Raises:
            SignatureError: the value is complex, packed or quantized.
        """
        signature.require(("bool", *INTEGERS, *FLOATS, *FLOAT8), "put a transform before it that makes real numbers, such as `abs`")
        return Signature("float64", (len(STATS),), ("stat",), {"stat": STATS})

    def begin(self, signature: Signature) -> TransformFn:
        """The kernel of `probes.transforms.kernels.stats`."""
        from probes.transforms.kernels.stats import stats

        return masked(stats, self.mask)
