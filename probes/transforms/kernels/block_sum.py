"""Add up float64 numbers with an error bound that does not depend on the order of additions in the library.

Adding m numbers in any order errs by at most (m - 1) u of the sum of their magnitudes, where u = 2**-53 (N. J. Higham, Accuracy
and Stability of Numerical Algorithms, 2nd edition, 2002, section 4.2). Here at most 1024 numbers are added at a time, then the
sums in the same way: 2 levels for 2**20 numbers, 4 for 2**40, so the error is at most 4 * 1023 u < 2**-41 of the magnitudes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Doubles = np.ndarray[Any, np.dtype[np.float64]]

BLOCK = 1024
BOUND = 2.0**-41  # of the sum of magnitudes


def block_sum(values: Doubles) -> Doubles:
    """The sums along the first axis.

    Args:
        values: (n, ...); not changed.

    Returns:
        (...); zeros if n is 0.
    """
    while len(values) > BLOCK:
        whole = len(values) // BLOCK * BLOCK
        sums = np.add.reduce(values[:whole].reshape(-1, BLOCK, *values.shape[1:]), axis=1)
        rest = values[whole:]
        values = np.concatenate((sums, np.add.reduce(rest, axis=0)[None])) if len(rest) else sums
    return np.asarray(np.add.reduce(values, axis=0))
