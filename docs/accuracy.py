"""Write docs/accuracy.md: the stated bound of each number that transforms compute, and the worst error found on hard inputs.

Usage: python docs/accuracy.py     (tests/transforms/test_accuracy.py compares all but the figures)
       python docs/accuracy.py --large     measures values of 50 million elements first, for minutes, and keeps the figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.transforms.accuracy import Row, measured, measured_of_many, rows
from tests.transforms.hard_inputs import OF_A_TILE

PAGE = Path(__file__).with_name("accuracy.md")
LARGE = Path(__file__).with_name("accuracy_large.json")
SEED, REPEATS, MANY = 0, 4, 50_000_000
TITLES = ("transform", "number", "dtypes", "bound", "inputs", "worst error, share of the bound")
HEAD = """# Accuracy

This page lists a bound of the error of each number that a transform computes. A bound holds for up to 2^30 elements and any number of
threads; the last rounding adds half a unit in the last place of the stored dtype. float16 and bfloat16 are stored as
float32. The docstrings of `probes/transforms/kernels` derive the bounds: adding m numbers in any order errs by at most (m - 1) u of
the sum of their magnitudes, and elements are added in blocks of 1024, then the sums of blocks, in float64, where u is 2^-53.

The inputs are normal numbers, values far from zero, nearly constant, constant and repeated values, cancelling pairs, one outlier,
subnormal, tiny and the largest numbers, magnitudes over the whole range, and drifts, of 1 to 2500 elements; they are compared with
exact integer arithmetic. `python docs/accuracy.py` writes this page; `make torture` draws other inputs.

"""
OF_MANY = """
The sums of all elements again, of values of {count:,} elements: a tile of {tile:,} elements, repeated.

"""
TAIL = """
These are exact: the other numbers of `stats` and `accumulate` (counts, min, max), `reduce` with max, min, any, all, and sums of
integers, which fail where they leave int64, `einops` with max, min and of integers (modulo 2^64), `histogram`, `select`, `sample`, `topk`,
`abs` of real elements and `fingerprint`. `cast` and `quantize` round once.

`einops` and `project` are computed by torch, in float32, or in float64 for float64: u is 2^-24 or 2^-53, and each of n terms adds
the smallest number of that dtype. The reductions of `einops` are rounded to the dtype of the value, and have a bound only where the
sum of magnitudes is in its range. A product of n errs by at most n u of itself. `project` has its bound unless the program allows torch
to multiply with fewer digits (`torch.set_float32_matmul_precision`).

Elements that are not finite: `stats` and `accumulate` leave them out and count them. In `norm`, `reduce` and `quantile` a NaN makes
the result NaN (for `l0`, `any` and `all` it is not zero), and infinities follow IEEE arithmetic. A result is infinite only
if an element is, or if the exact result is beyond the range of the stored dtype.
"""


def line(row: Row, *, figures: bool = True) -> str:
    """A row of the table."""
    share = "exact" if row.bound == "0" and not row.share else f"{float(row.share):.2g}"
    found = (f"{row.inputs:,}", share) if figures else ("", "")
    return "| " + " | ".join((f"`{row.transform}`", row.number, ", ".join(row.dtypes), row.bound, *found)) + " |"


def page(found: list[Row]) -> str:
    """The whole page, with the figures of large values that were kept."""
    kept = json.loads(LARGE.read_text(encoding="utf-8"))
    return HEAD + table(map(line, found)) + OF_MANY.format(count=kept["count"], tile=OF_A_TILE) + table(kept["lines"]) + TAIL


def table(lines: Iterable[str]) -> str:
    """A table of rows."""
    rule = "|".join("---" for _ in TITLES)
    return "\n".join([f"| {' | '.join(TITLES)} |", f"|{rule}|", *lines]) + "\n"


def keep() -> None:
    """Measure large values, and keep the figures."""
    kept = {"count": MANY, "lines": [line(row) for row in measured_of_many(SEED, MANY)]}
    LARGE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def outline(text: str) -> list[str]:
    """A page without the figures, which depend on the machine's BLAS."""
    return ["|".join(line.split("|")[:5]) if line.startswith("| `") else line for line in text.splitlines()]


def expected() -> list[str]:
    """The outline that the page should have."""
    return outline(page(rows()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--large"]:
        keep()
    PAGE.write_text(page(measured(SEED, REPEATS)), encoding="utf-8")
