from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from probes.signature import Signature, SignatureError
from probes.testing import check_transform
from tests.transforms.made import applied, made, same_bits

IMAGE = ("batch", "channel", "y", "x")


@pytest.mark.parametrize(
    "keys",
    [
        {"pattern": "batch channel y x -> batch channel", "reduction": "mean"},
        {"pattern": "batch channel y x -> x batch (channel y)"},
        {"pattern": "b (half c) ... -> half b ... c", "sizes": {"half": 2}},
        {"pattern": "b ... -> (b ...)"},
        {"pattern": "b ... -> b (...)"},
        {"pattern": "b c ... -> 1 c ...", "reduction": "max"},
        {"pattern": "b c ... -> b c", "reduction": "sum"},
        {"pattern": "b ... -> ()", "reduction": "prod"},
        {"pattern": "... -> ...", "sizes": {}},
    ],
)
def test_the_transform_passes_the_conformance_kit(keys: dict[str, Any]) -> None:
    check_transform(made("einops", **keys), shapes=[(2, 4, 3, 3), (3, 4), (6, 2, 0), (4,)], dims=IMAGE)


def test_a_mean_over_pixels_is_torchs_mean() -> None:
    value = torch.randn(2, 3, 4, 5)
    result = applied(made("einops", pattern="b c y x -> b c", reduction="mean"), value)
    assert same_bits(result, value.mean((2, 3)))


def test_heads_are_split_by_a_given_size() -> None:
    value = torch.randn(2, 7, 12)
    transform = made("einops", pattern="b t (h d) -> b h t d", sizes={"h": 3})
    assert same_bits(applied(transform, value), value.view(2, 7, 3, 4).transpose(1, 2))
    assert str(transform.out(Signature("float32", (2, 7, 12)))) == "float32[b=2, h=3, t=7, d=4]"


def test_joined_axes_get_joined_names_and_an_ellipsis_keeps_those_of_the_value() -> None:
    value = Signature("float32", (2, 3, 4, 5), IMAGE)
    assert made("einops", pattern="batch ... -> batch (...)").out(value).dims == ("batch", "channel_y_x")
    assert made("einops", pattern="b ... -> ... b").out(value).dims == ("channel", "y", "x", "b")
    assert made("einops", pattern="b ... -> ... b").out(Signature("float32", (2, 3))).dims == ("dim_1", "b")


def test_sums_of_whole_numbers_are_int64_even_over_no_axis() -> None:
    assert applied(made("einops", pattern="b ... -> b", reduction="sum"), torch.ones(3, dtype=torch.bool)).dtype is torch.int64


@pytest.mark.parametrize(
    ("keys", "signature", "message"),
    [
        ({"pattern": "b c -> c b"}, Signature("float32", (2, 3, 4)), "names 2 axes, but the value has 3"),
        ({"pattern": "a b ... -> b a ..."}, Signature("float32", (2,)), "at least 2 axes, but the value has 1"),
        ({"pattern": "b (h d) -> b h d", "sizes": {"h": 5}}, Signature("float32", (2, 12)), "cannot have size 12"),
        ({"pattern": "b (h d) -> b h d"}, Signature("float32", (2, 12)), "give one in `sizes`"),
        ({"pattern": "1 b -> b"}, Signature("float32", (2, 12)), "cannot have size 2"),
        ({"pattern": "batch x -> x batch"}, Signature("float32", (2, 3), ("x", "batch")), "calls `batch` the axis that is named `x`"),
        ({"pattern": "b c -> b", "reduction": "mean"}, Signature("int64", (2, 3)), "`int64` is not taken"),
        ({"pattern": "b c -> b", "reduction": "max"}, Signature("complex64", (2, 3)), "`complex64` is not taken"),
    ],
)
def test_settings_that_do_not_fit_the_value_are_refused(keys: dict[str, Any], signature: Signature, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        made("einops", **keys).out(signature)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pattern": "b c"}, "0 arrows"),
        ({"pattern": "b c -> b -> c"}, "2 arrows"),
        ({"pattern": "b (c d -> b c d"}, "parentheses of `b"),
        ({"pattern": "b c) -> b c"}, "parentheses"),
        ({"pattern": "b ((c) d) -> b c d"}, "parentheses"),
        ({"pattern": "b b -> b"}, "occurs twice"),
        ({"pattern": "(b ...) -> b ..."}, "inside parentheses left of the arrow"),
        ({"pattern": "b 2 -> b 2"}, "`2` is not the name of an axis"),
        ({"pattern": "b c -> b"}, "`c` is missing to the right of the arrow; add a `reduction`"),
        ({"pattern": "b -> b c"}, "`c` is only to the right of the arrow"),
        ({"pattern": "b c -> c b", "reduction": "mean"}, "`reduction` has no effect"),
        ({"pattern": "b c -> c b", "sizes": {"d": 3}}, "`sizes` has `d`"),
        ({"pattern": "b c -> c b", "sizes": {"b": 0}}, "greater than 0"),
        ({"pattern": "b (pattern c) -> b c pattern", "sizes": {"pattern": 2}}, "rename the axis"),
        ({"pattern": "b c -> b", "reduction": "median"}, "'mean', 'sum', 'max', 'min' or 'prod'"),
    ],
)
def test_a_pattern_that_cannot_match_is_a_mistake_in_the_spec(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(").replace(")", r"\)")):
        made("einops", **keys)
