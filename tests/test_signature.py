"""Names and labels of axes: no two axes have one name, and each keeps its labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.registry import component
from probes.signature import Signature, distinct


def test_names_are_made_distinct_from_the_first_axis_on() -> None:
    assert distinct(["a", "b"]) == ("a", "b")
    assert distinct(["a", "a", "a"]) == ("a", "a_1", "a_2")
    assert distinct(["a", "a", "a_1"]) == ("a", "a_2", "a_1")
    assert Signature("float32", (1, 1), ("a", "a")).dims == ("a", "a_1")


@pytest.mark.parametrize(
    ("steps", "dims", "named", "coords"),
    [
        (
            [{"kind": "quantile", "q": [0.1, 0.5, 0.9], "dim": 0}, {"kind": "quantile", "q": [0.25, 0.75], "dim": 1}],
            ("a", "b"),
            ("quantile", "quantile_1"),
            {"quantile": (0.1, 0.5, 0.9), "quantile_1": (0.25, 0.75)},
        ),
        (
            [{"kind": "quantile", "q": [0.25, 0.75], "dim": 1}, {"kind": "quantile", "q": [0.1, 0.5, 0.9], "dim": 0}],
            ("a", "b"),
            ("quantile", "quantile_1"),
            {"quantile": (0.1, 0.5, 0.9), "quantile_1": (0.25, 0.75)},
        ),
        (
            [{"kind": "histogram", "bins": 1, "range": [-1.0, 1.0], "dims": [0]}],
            ("a", "bin"),
            ("bin", "bin_1"),
            {"bin": ("under", "[-1, 1]", "over", "nan")},
        ),
        ([{"kind": "topk", "size": 2, "dim": 0}, {"kind": "topk", "size": 2, "dim": 1}], ("a", "b"), ("rank", "rank_1"), {}),
        ([{"kind": "einops", "pattern": "(a b) a_b -> (a b) a_b", "sizes": {"a": 2}}], None, ("a_b", "a_b_1"), {}),
        (
            [{"kind": "accumulate", "dims": [0]}],
            ("a", "stat"),
            ("stat", "stat_1"),
            {"stat": ("count", "nonfinite", "mean", "variance", "min", "max")},
        ),
        (
            [{"kind": "quantile", "q": [0.5], "dim": 1}, {"kind": "accumulate", "what": "covariance", "dims": [1]}],
            ("stat", "b"),
            ("stat", "stat_1"),
            {"stat": ("count", "nonfinite", "mean", "0", "1", "2", "3")},
        ),
    ],
)
def test_an_axis_keeps_its_labels_if_another_one_would_have_its_name(
    tmp_path: Path, steps: list[dict[str, Any]], dims: tuple[str, ...] | None, named: tuple[str, ...], coords: dict[str, Any]
) -> None:
    signature = Signature("float32", (4, 6), dims)
    for step in steps:
        signature = component("transform", step["kind"]).model_validate(step).out(signature)  # type: ignore[attr-defined]  # a transform
    assert (signature.dims, signature.coords) == (named, coords)
    model = nn.Sequential(nn.Identity())
    probe = {"hook": "forward", "modules": ["0"], "transforms": steps, **({"dims": list(dims)} if dims else {})}
    spec = {"version": 1, "probes": {"p": probe}, "sinks": {"file": {"kind": "hdf5"}, "log": {"kind": "jsonl"}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([torch.randn(4, 6)] * 2):
            model(x)
    array = probes.open(tmp_path / "run").series[0].xarray()
    assert len({*array.dims}) == len(array.dims)
    assert {name: tuple(array.coords[name].values.tolist()) for name in coords} == coords
