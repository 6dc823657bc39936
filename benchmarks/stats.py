"""What `stats` costs, in times of one float32 `sum` of as many elements; one torch thread.

Usage: python benchmarks/stats.py

Both run by turns and the median of the ratios within a turn is printed. `hot`: the same tensors at every turn, so that what
fits stays in the cache; `streaming`: other tensors at every turn, as in a model, so that nothing does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from probes.transforms.moments import moments

ELEMENTS = {"1 MiB": 1 << 18, "16 MiB": 1 << 22}
WORKING_SET = 96 << 20
BARS = {torch.float32: 6, torch.float16: 10, torch.bfloat16: 10}


def seconds(values: Tensor, *, summed: bool) -> float:
    began = perf_counter()
    values.sum() if summed else moments(values)
    return perf_counter() - began


def ratio(captured: Sequence[Tensor], summed: Sequence[Tensor]) -> float:
    """The median ratio of many turns through both lists."""
    turns = 400 if len(summed[0]) < 1 << 20 else 60
    ratios = []
    for turn in range(turns):
        at = turn % len(summed)
        ratios.append(seconds(captured[at], summed=False) / seconds(summed[at], summed=True))
    return statistics.median(ratios)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'float32 size':12} {'values':12} {'dtype':10} {'bar':>4} {'hot':>6} {'streaming':>10}")
    for size, elements in ELEMENTS.items():
        normal = torch.randn(elements)
        for name, values in {"normal": normal, "after a ReLU": normal.relu(), "mean of 3": normal + 3}.items():
            copies = WORKING_SET // values.nbytes
            for dtype, bar in BARS.items():
                captured = [values.to(dtype, copy=True) for _ in range(copies)]
                summed = [values.clone() for _ in range(copies)]
                # Hot: the sum reads what was just described where both are float32.
                hot = ratio(captured[:1], captured[:1] if dtype is torch.float32 else summed[:1])
                print(f"{size:12} {name:12} {str(dtype)[6:]:10} {bar:4} {hot:6.1f} {ratio(captured, summed):10.1f}")


if __name__ == "__main__":
    main()
