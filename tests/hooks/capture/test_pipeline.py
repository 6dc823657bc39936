"""Transforms of values that change their size, or that have bits which numpy does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.hooks.capture import pipeline
from probes.hooks.capture.pipeline import LaterTransforms, Pipeline
from probes.registry import component
from probes.signature import Signature


def made(*steps: dict[str, Any]) -> list[Any]:
    return [component("transform", step["kind"]).model_validate(step) for step in steps]


def test_labels_are_those_of_the_size_of_each_value() -> None:
    found = Pipeline(made({"kind": "accumulate", "what": "covariance", "dims": [0]}), None)
    for features in (3, 5, 3):
        value, signature = found(torch.randn(4, features))
        assert len(signature.coords["stat"]) == len(value) == 3 + features


def test_later_transforms_continue_with_the_labels_of_the_result_they_get() -> None:
    later = LaterTransforms(made({"kind": "abs"}))
    for labels in (("a", "b"), ("c", "d")):
        later.start_with(Signature("float32", (2,), ("x",), {"x": labels}))
        assert later(torch.ones(2))[1].coords == {"x": labels}


def captured(value: Tensor, path: Path, *transforms: dict[str, Any]) -> Tensor:
    model = nn.Sequential(nn.Identity())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "transforms": list(transforms)}}}
    with probes.attach(model, spec, out=path) as run:
        for x in run.steps([value]):
            model(x)
    found: Tensor = probes.open(path).series[0].torch()[0]
    return found


def test_negated_and_strided_values_are_transformed_like_their_copies(tmp_path: Path) -> None:
    negated = torch.randn(6, dtype=torch.complex128).conj().imag
    assert negated.is_neg()
    for index, value in enumerate((negated, torch.arange(12.0)[::2], torch.arange(8.0)[::8])):
        for kind in ("norm", "stats", "fingerprint"):
            one, other = (
                captured(each, tmp_path / f"{index} {kind} {name}", {"kind": kind})
                for name, each in {"own": value, "copy": value.resolve_neg().clone(memory_format=torch.contiguous_format)}.items()
            )
            assert torch.equal(one, other)


def test_the_labels_of_a_limited_number_of_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_SHAPES", 3)
    kept = Pipeline(made({"kind": "accumulate", "what": "covariance", "dims": [0]}), None)
    for features in (*range(3, 12), 3):
        assert len(kept(torch.randn(4, features))[1].coords["stat"]) == 3 + features
    assert [len(of_shapes) for of_shapes in kept.sized.values()] == [1]
