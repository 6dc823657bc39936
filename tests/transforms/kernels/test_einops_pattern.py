from __future__ import annotations

import torch
from einops import rearrange
from hypothesis import given
from hypothesis import strategies as st

from probes.transforms.kernels.einops_pattern import names, parse


def test_a_pattern_has_items_of_names() -> None:
    left, right = parse("b (h w) ... 1 -> (... h) w b")
    assert left == (("b",), ("h", "w"), ..., ())
    assert right == (("...", "h"), ("w",), ("b",))
    assert names(left) == ("b", "h", "w", "...")


@given(st.permutations(["a", "b", "c"]), st.integers(0, 2), st.integers(1, 3))
def test_a_pattern_is_read_as_einops_reads_it(order: list[str], start: int, width: int) -> None:
    words = [*order[:start], "(" + " ".join(order[start : start + width]) + ")", *order[start + width :]]
    pattern = f"a b c -> {' '.join(words)}"
    sizes = {"a": 2, "b": 3, "c": 5}
    result = rearrange(torch.zeros(2, 3, 5), pattern)
    expected = []
    for item in parse(pattern).right:
        size = 1
        for name in names((item,)):
            size *= sizes[name]
        expected.append(size)
    assert list(result.shape) == expected
