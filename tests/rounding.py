"""How far results in floating point may be from exact ones: the standard model, in which each operation errs by at most u of its result."""

from __future__ import annotations

from typing import Any

import torch

U32, U64 = 2.0**-24, 2.0**-53


def after(roundings: int, u: float = U32) -> float:
    """The relative error after so many roundings, one upon the other: n u / (1 - n u)."""
    return roundings * u / (1 - roundings * u)


def within(found: Any, exact: Any, bound: Any) -> bool:
    """Whether every element is as near to the exact one as the bound says; NaN equals NaN."""
    found, exact, bound = (torch.as_tensor(one, dtype=torch.float64) for one in (found, exact, bound))
    return bool((((found - exact).abs() <= bound) | (found.isnan() & exact.isnan()) | (found == exact)).all())
