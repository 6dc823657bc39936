from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import einops
import pytest
import torch
import xarray
from torch import Tensor, nn
from torch.optim import Optimizer

import probes
from probes.reader.run import RunReader
from probes.signature import Signature
from probes.transforms.stats import Stats
from tests.examples.scripts import EXAMPLES, bits, load, python, saved_by_hand
from tests.rounding import within

EPOCHS = 3
STEPS = {"train": 23, "eval": 3}  # batches in a pass over the training and the test images
FIRST = {0}
SOME = {0, 1, 2, 10, 20}
Name = tuple[str, str, str, str]  # probe, target, leaf, phase


class Trained(NamedTuple):
    run: RunReader
    by_hand: dict[Name, list[Tensor]]
    plain: dict[str, Any]
    probed: dict[str, Any]
    output: str
    plain_output: str


class Notebook:
    """Hooks as PyTorch's documentation shows them: each appends a clone to a list."""

    def __init__(self) -> None:
        self.saved: dict[Name, list[Tensor]] = defaultdict(list)

    def hang(self, model: Any) -> Any:
        model.register_forward_pre_hook(lambda module, args: self.save("images", "", "input.images", model, args[0]))
        model.features.norm.register_forward_hook(self.norm_hook(model))
        model.features.stem.register_forward_hook(self.stem_hook(model))
        model.classifier.register_forward_hook(lambda module, args, output: self.save("logits", "classifier", "output", model, output))
        for index, layer in enumerate(model.features.block):
            layer.register_forward_hook(self.layer_hook(f"features.block.{index}", model))
        return model

    def save(self, probe: str, target: str, leaf: str, model: nn.Module, value: Tensor) -> None:
        self.saved[probe, target, leaf, "train" if model.training else "eval"].append(value.detach().clone())

    def norm_hook(self, model: nn.Module) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            self.save("norm-output", "features.norm", "output", model, output)
            means = einops.reduce(output, "image channel y x -> image channel", "mean")
            self.save("norm-channels", "features.norm", "output", model, means.to(torch.float16))
            if output.requires_grad:
                output.register_hook(lambda grad: self.save("norm-gradient", "features.norm", "grad_output", model, summed(grad)))

        return hook

    def stem_hook(self, model: nn.Module) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(lambda grad: self.save("stem-gradient", "features.stem", "grad_output", model, histogram(grad)))

        return hook

    def layer_hook(self, name: str, model: nn.Module) -> Any:
        def hook(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
            self.save("layer-stats", name, "output", model, output)

        return hook

    def watch(self, optimizer: Optimizer, model: Any) -> Optimizer:
        def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self.save("weight-gradient", "classifier.weight", "grad", model, model.classifier.weight.grad)

        optimizer.register_step_post_hook(hook)
        return optimizer


def summed(values: Tensor) -> Tensor:
    """Sums over y and x, rounded once, as the table of accuracy says."""
    return values.double().sum((2, 3)).float()


def histogram(values: Tensor) -> Tensor:
    inner, _ = torch.histogram(values.double().flatten(), bins=32, range=(-0.01, 0.01))
    outer = [(values < -0.01).sum(), (values > 0.01).sum(), values.isnan().sum()]
    return torch.tensor([outer[0], *inner, *outer[1:]]).to(torch.int64)


def train_with_hooks_by_hand(checkpoint: Path) -> dict[Name, list[Tensor]]:
    """Run the very script, with hooks hung on the model as soon as it is made."""
    script, notebook, models = load("digits", "train.py"), Notebook(), []
    make_model, make_optimizer = script.DigitsNet, script.SGD
    script.DigitsNet = lambda: models.append(notebook.hang(make_model())) or models[0]
    script.SGD = lambda *args, **kwargs: notebook.watch(make_optimizer(*args, **kwargs), models[0])
    script.main(["--checkpoint", str(checkpoint)])
    return dict(notebook.saved)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("digits")
    script, spec = EXAMPLES / "digits" / "train.py", EXAMPLES / "digits" / "probe.yaml"
    plain = python(script, "--checkpoint", "plain.pt", cwd=folder)
    probed = python("-m", "probes", "run", "--out", "run", spec, script, "--checkpoint", "probed.pt", cwd=folder)
    by_hand = saved_by_hand("tests.examples.test_digits", "train_with_hooks_by_hand", folder)
    return Trained(
        probes.open(folder / "run"), by_hand, torch.load(folder / "plain.pt"), torch.load(folder / "probed.pt"), probed.stdout, plain.stdout
    )


def due(probe: str, phase: str) -> list[tuple[int, int]]:
    steps = {"images": FIRST, "norm-output": FIRST, "logits": set(range(STEPS["eval"]))}.get(probe, SOME)
    return [(epoch, step) for epoch in range(EPOCHS) for step in sorted(steps) if step < STEPS[phase]]


def test_every_probe_has_a_series_and_no_other_series_exists(trained: Trained) -> None:
    assert {tuple(series.key) for series in trained.run.series} == {
        ("images", "", "input.images", "train"),
        ("norm-output", "features.norm", "output", "train"),
        ("norm-channels", "features.norm", "output", "train"),
        *(("layer-stats", f"features.block.{index}", "output", phase) for index in range(3) for phase in ("train", "eval")),
        ("logits", "classifier", "output", "eval"),
        ("norm-gradient", "features.norm", "grad_output", "train"),
        ("stem-gradient", "features.stem", "grad_output", "train"),
        ("weight-gradient", "classifier.weight", "grad", "train"),
    }
    assert trained.run.epochs == [0, 1, 2]
    assert set(trained.run.state.values()) == {"complete"}


def test_every_stored_value_is_bit_for_bit_what_a_hook_written_by_hand_saves(trained: Trained) -> None:
    for series in trained.run.series:
        saved = trained.by_hand[tuple(series.key)]
        phase = series.key.phase
        assert [(capture.clock.epoch, capture.clock.step) for capture in series] == due(series.key.probe, phase), series.key
        for capture in series:
            expected = saved[capture.clock.epoch * STEPS[phase] + capture.clock.step]
            if series.key.probe == "layer-stats":
                expected = described(expected)
            assert bits(capture.value) == bits(expected.numpy()), (series.key, capture.clock)


def described(value: Tensor) -> Tensor:
    """The ten statistics, from the kernel, after a look at them from plain torch."""
    stats = Stats()
    found = stats.begin(Signature("float32", tuple(value.shape)))(value)
    wide = value.double()
    expected = [value.numel(), wide.mean(), wide.std(correction=0), wide.min(), wide.max(), wide.norm(), (value == 0).sum(), 0, 0, 0]
    spread, length = float(expected[2]), float(expected[5])
    bound = [0, 2**-17 * spread + 2**-51 * abs(float(expected[1])), 2**-16 * spread, 0, 0, 2**-17 * length, 0, 0, 0, 0]
    assert within(found, expected, bound), "twice the bounds of docs/accuracy.md: torch rounds too"
    return found


def test_weights_losses_and_random_state_are_those_of_the_run_without_probes(trained: Trained) -> None:
    assert trained.probed["losses"] == trained.plain["losses"]
    assert torch.equal(trained.probed["random_state"], trained.plain["random_state"])
    assert trained.probed["model"].keys() == trained.plain["model"].keys()
    for name, weight in trained.plain["model"].items():
        assert torch.equal(trained.probed["model"][name], weight), name


def test_the_script_prints_what_it_prints_without_probes(trained: Trained) -> None:
    assert trained.output == trained.plain_output


def test_xarray_opens_every_file_with_named_axes_and_steps(trained: Trained) -> None:
    for file in sorted(trained.run.path.glob("*.h5")):
        with xarray.open_datatree(file, engine="h5netcdf") as tree:
            channels = tree["captures/norm-channels"].children
            assert [set(group["values"].dims) for group in channels.values()] == [{"step", "image", "channel"}]
            assert [list(group["step"].values) for group in channels.values()] == [[0, 1, 2, 10, 20]]


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump comes with HDF5's tools")
def test_h5dump_reads_every_file(trained: Trained) -> None:
    for file in trained.run.path.glob("*.h5"):
        done = subprocess.run(["h5dump", "-H", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_logits_come_back_as_one_row_for_each_test_image(trained: Trained) -> None:
    logits = trained.run.sel(epoch=2)["logits", "classifier"].rows()
    assert logits.shape == (360, 10)
