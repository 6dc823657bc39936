"""A value that cannot be taken is skipped, counted and reported, and what comes after it is captured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.commands.ls import _missing
from probes.errors import RunError, StorageError
from probes.hooks.capture.recorder import Recorder
from probes.printable import LONGEST_ERROR

SIZES = (40, 40, 12)


class Strange(dict[str, Any]):
    """A container that cannot be looked into."""

    def __iter__(self) -> Any:
        raise KeyError("not now")


class WithoutText(Exception):
    """An error of the program whose message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class Raises(dict[str, Any]):
    """A container that raises a given error when it is looked into."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __iter__(self) -> Any:
        raise self.error


class Parts(nn.Module):
    """Values of many kinds, some of which are not there in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.side = nn.Identity()
        self.mixed = Pack()
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.line(x)
        self.mixed(hidden)
        self.side(Strange(a=hidden) if len(x) == 12 else hidden)
        view = hidden[:, :]
        return self.head(self.relu(view))


class Pack(nn.Module):
    def forward(self, x: Tensor) -> Any:
        if len(x) == 12:
            return x.long(), x
        return x.long(), x, None, [x, x]


def trained(path: Path, specs: dict[str, Any], epochs: int = 2, model: nn.Module | None = None) -> tuple[Any, str]:
    """The run, and what it was ended with."""
    torch.manual_seed(0)
    model = model or Parts()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = probes.attach(model, {"version": 1, "name": "t", "probes": specs}, out=path / "run")
    message = ""
    try:
        with run:
            for _ in run.epochs(epochs):
                for x in run.steps([torch.randn(size, 4) for size in SIZES]):
                    model(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
    except RunError as error:
        message = str(error)
    return run, message


def steps(path: Path, probe: str, target: str, leaf: str) -> Iterator[tuple[int, int]]:
    return ((one.clock.epoch, one.clock.step) for one in probes.open(path / "run")[probe, target, leaf])


def test_a_value_that_fails_in_the_last_batch_is_captured_in_all_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    probe = {"modules": ["line"], "values": ["output"], "transforms": [{"kind": "select", "dim": 0, "indices": [30]}]}
    run, message = trained(tmp_path, {"p": probe})
    assert list(steps(tmp_path, "p", "line", "output")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "probe `p`: `output` of `line` is missing in 2 of 6 steps that were due: failed 2 times" in message
    told = [line for line in capfd.readouterr().err.splitlines() if "`output` of `line` is skipped (failed)" in line]
    assert len(told) == 1
    assert told[0].endswith("epoch 0 step 2")
    assert "`output` of `line`: failed 2 times" in run.summary().rows[0].note
    found = probes.open(tmp_path / "run")
    assert [(one.target, one.leaf, one.reason, one.times) for one in found.missing] == [("line", "output", "failed", 1)] * 2
    assert _missing(found)[0].startswith("missing: p: `output` of `line`: failed 2 times (")
    notes = [one.message for one in probes.verify(tmp_path / "run").findings]
    assert notes == ["missing: p: `output` of `line`: failed once"] * 2


def test_a_leaf_that_a_transform_refuses_does_not_affect_the_others(tmp_path: Path) -> None:
    probe = {"modules": ["mixed"], "values": ["output"], "transforms": [{"kind": "norm"}]}
    _, message = trained(tmp_path, {"p": probe}, 1)
    assert "probe `p`: `output` of `mixed` could not be taken 3 times: failed 3 times (`int64`" in message
    assert len(list(steps(tmp_path, "p", "mixed", "output.1"))) == 3
    assert len(list(steps(tmp_path, "p", "mixed", "output.3.0"))) == 2


def test_a_member_that_is_absent_in_one_call_is_captured_in_later_calls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    probe = {"modules": ["mixed"], "values": ["output.3", "output.2"]}
    _, message = trained(tmp_path, {"p": probe})
    assert list(steps(tmp_path, "p", "mixed", "output.3.0")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "`output.3` of `mixed` is missing in 2 of 6 steps that were due: absent 2 times" in message
    assert "`output.2` of `mixed` is missing in 6 of 6 steps that were due: absent 6 times (`output.2` is None" in message
    assert capfd.readouterr().err.count("is skipped (absent)") == 2


def test_a_gradient_that_is_lost_in_place_is_missing_although_the_output_is_captured(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)), nn.ReLU(inplace=True))
    probe = {"modules": ["1"], "values": ["output", "grad_output"], "expect": {"fires": "each_step"}}
    _, message = trained(tmp_path, {"p": probe}, 1, model)
    assert "`grad_output` of `1` is missing in 3 of 3 steps that were due: lost in-place 3 times" in message


def test_a_value_that_does_not_fit_those_before_it_is_left_out_of_an_accumulation(tmp_path: Path) -> None:
    accumulate = {"kind": "accumulate", "dims": ["feature"]}
    probe = {"modules": ["line"], "values": ["output"], "dims": ["row", "feature"], "transforms": [accumulate]}
    _, message = trained(tmp_path, {"p": probe}, 1)
    assert "could not be taken once: failed once" in message
    assert probes.open(tmp_path / "run")["p", "line"].numpy().shape == (1, 6, 40)


def test_a_container_that_raises_affects_no_training_and_no_later_call(tmp_path: Path) -> None:
    _, message = trained(tmp_path, {"p": {"modules": ["side"], "values": ["output"]}})
    assert list(steps(tmp_path, "p", "side", "output")) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "failed 2 times ('not now'" in message


class WithSide(nn.Module):
    """A layer, and a part that is called with a given value and returns it."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.side = nn.Identity()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        self.side(self.value)
        return self.line(x)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (WithoutText(), "failed 3 times: WithoutText; "),
        (OSError("cannot open caf\udce9.pt"), r"cannot open caf\udce9.pt"),
        (ValueError("x" * 5_000_000), f"failed 3 times: {'x' * LONGEST_ERROR} ...; "),
    ],
    ids=["without a message", "a name that is not UTF-8", "five million characters"],
)
def test_an_error_with_any_message_affects_no_training_and_no_other_value(tmp_path: Path, error: Exception, text: str) -> None:
    side = {"modules": ["side"], "values": ["output"], "expect": {"fires": "some"}}
    _, message = trained(tmp_path, {"p": side, "q": {"modules": ["line"], "values": ["output"]}}, 1, WithSide(Raises(error)))
    assert text in message
    assert probes.open(tmp_path / "run")["q", "line"].steps.tolist() == [0, 1, 2]
    assert probes.verify(tmp_path / "run").ok


def test_targets_of_a_glob_that_fail_alike_are_reported_a_few_times_and_named_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
    model.append(nn.Unflatten(1, (2, 2)))
    probe = {"hook": "forward", "modules": ["*"], "transforms": [{"kind": "select", "dim": 0, "indices": [2]}]}
    with probes.attach(model, {"version": 1, "name": "t", "probes": {"p": probe}}, out=tmp_path / "run") as run:
        for x in run.steps([torch.ones(size, 4) for size in (3, 1, 3)]):
            model(x)
    err = capfd.readouterr().err
    assert err.count("is skipped (failed)") == 3
    assert "further values are skipped (failed); the summary names them" in err
    assert "`output` of `0`, `1`, `2` and 4 more: failed 7 times" in str(run.summary())


def test_a_disk_that_fails_while_an_edit_is_recorded_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Recorder, "put", full)
    model = nn.Sequential(nn.Linear(4, 4))
    probe = {"modules": ["0"], "hook": "forward", "edit": {"kind": "mixup", "lam": 0.5, "seed": 0}}
    spec = {"version": 1, "name": "t", "allow_edits": True, "probes": {"p": probe}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([torch.ones(3, 4)] * 2):
            model(x).sum().backward()
    assert run.engine.failures.stopped == "the disk is full"


def test_a_gradient_that_does_not_exist_is_reported_and_fails_only_if_each_step_is_expected(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    probe = {"modules": ["line"], "values": ["output", "grad_input"]}
    _, message = trained(tmp_path, {"p": probe})
    assert message == ""
    assert capfd.readouterr().err.count("`grad_input` of `line` is missing in epoch 0 step 0: frozen") == 1
    _, message = trained(tmp_path / "strict", {"p": {**probe, "expect": {"fires": "each_step"}}})
    assert "`grad_input` of `line` is missing in 6 of 6 steps" in message


def test_a_run_whose_model_is_called_in_transforms_only_says_that_it_had_no_step(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    spec = {"version": 1, "probes": {"p": {"tensors": ["weight"], "hook": "tensor"}}}
    run = probes.attach(model, spec, out=tmp_path)
    run.start()
    for x in run.steps([torch.ones(3, 2)]):
        torch.func.vmap(model)(x)
    with pytest.raises(RunError, match=r"the run had no step: .* within transforms of `torch.func`"):
        run.close()
