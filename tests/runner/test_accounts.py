"""The counters of a binding: every reason of the closed list, where it ends up, and what a replaced module comes to."""

from __future__ import annotations

import copy
import json
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import probes
from probes.errors import RunError
from probes.hooks.capture.account import REASONS
from probes.runner.summary import unmet


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def plain(model: nn.Module, data: Any) -> None:
    for x in data:
        model(x).sum().backward()


def run_with(model: nn.Module, path: Path, probe: dict[str, Any], loop: Any = plain, epochs: int = 1, **spec: Any) -> Any:
    """The run after three steps an epoch, whether or not the spec was satisfied."""
    with (
        pytest.MonkeyPatch.context() as patch,
        probes.attach(model, {"version": 1, "name": "t", "probes": {"p": probe}, **spec}, out=path / "run") as run,
    ):
        patch.setattr(run, "_check_captured", lambda: None)
        for _ in run.epochs(epochs):
            loop(model, run.steps([X] * 3))
    return run


def skipped(path: Path, epoch: int = 0) -> dict[str, int]:
    found: dict[str, int] = account(path, epoch)["skipped"]
    return found


def account(path: Path, epoch: int = 0) -> dict[str, Any]:
    """The first binding's books, out of the file."""
    with h5py.File(path / "run" / f"epoch-{epoch:04d}.h5") as file:
        found: dict[str, Any] = json.loads(file["closing"][()])["accounts"][0]
    return found


def net(size: int = 2) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, size))


class Side(nn.Module):
    """A part whose output is thrown away, or is rewritten in place."""

    def __init__(self, part: nn.Module, use: str) -> None:
        super().__init__()
        self.part = part
        self.last = nn.Linear(4, 2)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        if self.use == "not":
            return self.last(x)
        if self.use == "no_grad":
            with torch.no_grad():
                hidden = self.part(x)
            return self.last(hidden)
        if self.use == "dropped":
            self.part(x)
            return self.last(x)
        if self.use == "checkpoint":
            return self.last(checkpoint(self.part, x * self.last.weight.sum(), use_reentrant=False))
        hidden = self.part(x * self.last.weight.sum())
        torch.relu_(hidden)
        return self.last(hidden)


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:2]


def frozen() -> nn.Module:
    part = nn.Linear(4, 4)
    part.requires_grad_(False)
    return part


def over(model: nn.Module, data: Any) -> None:
    for x in data:
        torch.vmap(model)(x)


def meta(model: nn.Module, data: Any) -> None:
    for x in data:
        model(x.to("meta"))


def overflowing(model: nn.Module, data: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for i, x in enumerate(data):
        optimizer.zero_grad()
        scaler.scale(model(x).sum() * (float("inf") if i == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()


def deleting(model: nn.Module, data: Any) -> None:
    for index, x in enumerate(data):
        model(x)
        if index == 0:
            del model.get_submodule("0")._parameters["bias"]
            model.get_submodule("0").bias = None


def clearing(model: nn.Module, data: Any) -> None:
    for index, x in enumerate(data):
        if index == 1:
            for module in model.modules():  # as in functions that remove all hooks
                module._forward_hooks.clear()
                module._forward_pre_hooks.clear()
        model(x).sum().backward()


FINAL = {"hook": "tensor", "tensors": ["0.weight"], "stage": "final"}

CASES: dict[str, tuple[Any, dict[str, Any], Any, dict[str, Any]]] = {
    "not reached": (lambda: Side(nn.Linear(4, 4), "not"), {"hook": "forward", "modules": ["part"]}, plain, {}),
    "replaced": (net, {"hook": "tensor", "tensors": ["0.bias"], "values": ["data"]}, deleting, {}),
    "removed": (net, {"hook": "forward", "modules": ["0"]}, clearing, {}),
    "not called": (net, {"hook": "forward", "modules": ["0"], "ops": ["softmax"]}, plain, {}),
    "not logged": (net, {"values": ["loop.loss"]}, plain, {}),
    "no_grad": (lambda: Side(nn.Linear(4, 4), "no_grad"), {"hook": "backward", "modules": ["part"]}, plain, {}),
    "frozen": (lambda: Side(frozen(), "dropped"), {"hook": "backward", "modules": ["part"]}, plain, {}),
    "unused output": (lambda: Side(nn.Linear(4, 4), "dropped"), {"hook": "backward", "modules": ["part"]}, plain, {}),
    "lost in-place": (lambda: Side(First(), "rewritten"), {"hook": "backward", "modules": ["part"]}, plain, {}),
    "recompute": (lambda: Side(net(4), "checkpoint"), {"hook": "forward", "modules": ["part.0"]}, plain, {}),
    "functorch": (lambda: nn.Sequential(nn.Linear(4, 2)), {"hook": "forward", "modules": ["0"]}, over, {}),
    "no data": (lambda: nn.Sequential(nn.Identity()), {"hook": "forward", "modules": ["0"]}, meta, {}),
    "absent": (net, {"modules": ["0"], "values": ["output.logits"]}, plain, {}),
    "filtered": (net, {"hook": "forward", "modules": ["0"], "when": {"calls": {"at": [1]}}}, plain, {}),
    "limit": (net, {"hook": "forward", "modules": ["0"]}, plain, {"limits": {"bytes_per_epoch": 50}}),
    "no optimizer step": (net, FINAL, overflowing, {}),
    "failed": (net, {"hook": "forward", "modules": ["0"], "dims": ["one"]}, plain, {}),
}


ELSEWHERE = {
    "no share": "hooks/test_input_share.py",
    "compiled away": "hooks/capture/test_compiled.py",
    "ring full": "runner/triggers/test_trigger.py",
    "no state": "hooks/test_optimizer.py",
    "unknown before": "hooks/test_optimizer.py",
    "no second tensor": "hooks/comparison/test_comparing.py",
}  # they take more than a row to reach


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason not in ELSEWHERE])
def test_every_reason_can_be_reached_and_is_in_the_file(tmp_path: Path, reason: str) -> None:
    make, probe, loop, spec = CASES[reason]
    run_with(make(), tmp_path, probe, loop, **spec)
    found = skipped(tmp_path)
    assert found.get(reason), found
    assert set(found) <= set(REASONS)


@pytest.mark.parametrize("hook", ["forward", "pre-forward", "backward"])
def test_a_module_whose_hooks_other_code_removes_gets_them_again(tmp_path: Path, hook: str) -> None:
    model = net()
    spec = {"version": 1, "probes": {"p": {"hook": hook, "modules": ["0"], "expect": {"fires": "some"}}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run:
        clearing(model, run.steps([X] * 4))
    found = probes.open(tmp_path / "r")["p", "0"]
    assert found.clocks["step"].tolist() == [0, 2, 3]


def test_items_without_a_call_of_the_model_are_counted_at_the_end(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}, out=tmp_path / "r") as run:
        for index, x in enumerate(run.steps([X] * 5)):
            if index == 2:
                model = copy.deepcopy(model)  # the program continues with a copy, which no probe is on
            model(x)
    assert "steps: 2 `eval` (3 items without a call of the model)" in str(run.summary()).replace("`train`", "`eval`")


def test_every_other_reason_has_a_separate_test() -> None:
    assert set(REASONS) - set(CASES) == set(ELSEWHERE)
    for reason, place in ELSEWHERE.items():
        assert reason in (Path(__file__).parent.parent / place).read_text()


def test_a_step_that_a_scaler_skips_is_not_an_error_unless_each_is_expected(tmp_path: Path) -> None:
    def run(name: str, probe: dict[str, Any]) -> None:
        model = net()
        with probes.attach(model, {"version": 1, "probes": {"p": probe}}, out=tmp_path / name) as run:
            overflowing(model, run.steps([X] * 3))

    run("run", FINAL)
    books = account(tmp_path)
    assert (books["expected"], books["written"], books["skipped"]) == (3, 2, {"no optimizer step": 1})
    with pytest.raises(RunError, match="is missing in 1 of 3 steps"):
        run("strict", {**FINAL, "expect": {"fires": "each_step"}})


def test_a_final_gradient_without_an_optimizer_is_reported(tmp_path: Path) -> None:
    model = net()
    with (
        pytest.raises(RunError, match="captured nothing: 3 times no optimizer step"),
        probes.attach(model, {"version": 1, "probes": {"p": FINAL}}, out=tmp_path / "run") as run,
    ):
        plain(model, run.steps([X] * 3))


def test_a_target_that_fired_without_a_capture_is_not_reported_as_never_fired(tmp_path: Path) -> None:
    run = run_with(Side(frozen(), "dropped"), tmp_path, {"hook": "backward", "modules": ["*"]})
    assert "1 of 2 captured nothing" in str(run.summary())


def test_a_graph_that_waits_for_its_backward_is_not_called_unused(tmp_path: Path) -> None:
    def truncated(model: nn.Module, data: Any) -> None:
        kept = [model(x).sum() for x in data]
        graphs.append(kept[-1])
        for loss in kept[:1]:
            loss.backward()

    graphs: list[Tensor] = []
    run = run_with(net(), tmp_path, {"hook": "backward", "modules": ["0"]}, truncated)
    books = account(tmp_path)
    assert (books["armed"], books["returned"], books["alive"], books["skipped"]) == (3, 1, 1, {"unused output": 1})
    graphs.clear()
    assert run.accounts[0][0].unused == 2


def test_a_backward_of_an_earlier_epochs_graph_is_stored_late_and_its_counters_stay_right(tmp_path: Path) -> None:
    model = net()
    kept: list[Tensor] = []

    def truncated(model: nn.Module, data: Any) -> None:
        for x in data:
            loss = model(x).sum()
            if kept:
                kept.pop().backward()
            kept.append(loss)

    run_with(model, tmp_path, {"hook": "backward", "modules": ["0"]}, truncated, epochs=2)
    assert account(tmp_path)["alive"] == 1
    assert "unused output" not in account(tmp_path)["skipped"]
    clocks = [(capture.clock.epoch, capture.clock.step) for capture in probes.open(tmp_path / "run")["p", "0"]]
    assert sorted(clocks) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_a_module_that_is_replaced_between_epochs_is_bound_again_and_counted(tmp_path: Path) -> None:
    model = net()
    others: list[nn.Linear] = []

    def loop(model: Any, data: Any) -> None:
        plain(model, data)
        others.append(model[0])
        model[0] = nn.Linear(4, 4)

    run = run_with(model, tmp_path, {"modules": ["0"], "values": ["output", "input"]}, loop, epochs=2)
    assert "module `0` was replaced: a `Linear` before, another `Linear` now" in account(tmp_path)["drift"]
    assert torch.equal(probes.open(tmp_path / "run").sel(epoch=1)["p", "0", "output"].torch()[0], others[1](X))
    assert "was replaced" in str(run.summary())
    for module in (*model.modules(), *others):
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_removed_module_fails_the_run_with_its_name(tmp_path: Path) -> None:
    model: Any = net()

    def loop(model: Any, data: Any) -> None:
        plain(model, data)
        if isinstance(model[0], nn.Linear):
            model[0] = nn.ModuleList()
            model.forward = model[1].forward

    run = run_with(model, tmp_path, {"hook": "forward", "modules": ["0"]}, loop, epochs=2)
    assert "`output` of `0` is missing in 3 of 6 steps" in str(unmet(run.plan, run.accounts, run.engine.clock.totals)[0])
    assert "was removed" in account(tmp_path)["drift"]


def test_a_parameter_that_is_replaced_is_bound_again_and_counted(tmp_path: Path) -> None:
    model = net()

    def loop(model: Any, data: Any) -> None:
        plain(model, data)
        model[0].weight = nn.Parameter(torch.ones(4, 4))

    run_with(model, tmp_path, {"hook": "tensor", "tensors": ["0.weight"]}, loop, epochs=2)
    assert account(tmp_path, 1)["drift"] == "parameter `weight` was replaced by another parameter"
    assert account(tmp_path, 1)["written"] == 3


def test_a_part_that_is_wrapped_after_the_start_is_still_captured(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 2))

    def loop(model: Any, data: Any) -> None:
        plain(model, data)
        if not isinstance(model[0], nn.DataParallel):
            model[0] = nn.DataParallel(model[0])

    run_with(model, tmp_path, {"hook": "forward", "modules": ["0.0"]}, loop, epochs=2)
    assert account(tmp_path, 1)["written"] == 3


def test_the_accounts_of_old_epochs_are_summed(tmp_path: Path) -> None:
    run = run_with(net(), tmp_path, {"hook": "forward", "modules": ["0"]}, epochs=18)
    assert len(run.accounts) == 16
    assert [sum(getattr(epoch[0], name) for epoch in run.accounts.values()) for name in ("expected", "fired", "written")] == [54] * 3


@pytest.mark.parametrize("has_trainer", [False, True])
def test_a_number_that_nobody_logged_is_answered_with_how_to_log_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_trainer: bool
) -> None:
    for name in ("transformers.trainer", "pytorch_lightning.core.module", "lightning.pytorch.core.module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if has_trainer:
        monkeypatch.setitem(sys.modules, "transformers.trainer", ModuleType("transformers.trainer"))
    spec = {"version": 1, "probes": {"p": {"values": ["loop.train_loss"]}}}
    model = net()
    with pytest.raises(RunError) as raised, probes.attach(model, spec, out=tmp_path / "run") as run:
        plain(model, run.steps([X] * 3))
    how = "log it with `run.log(train_loss=...)` while its step is open"
    own = "; what the Trainer of transformers logs by itself is captured under `probes run` only"
    assert str(raised.value).endswith(how + (own if has_trainer else ""))


def dropping(x: Tensor, model: nn.Module) -> None:
    model(x)
    raise KeyError


def test_captures_of_a_dropped_step_are_not_counted_as_stored(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        for step in range(4):
            with suppress(KeyError), run.step():
                model(torch.ones(2)) if step % 2 else dropping(torch.ones(2), model)
    (row,) = run.summary().rows
    assert len(probes.open(tmp_path / "r")["p", "0"]) == row.captures == 2
    assert (row.fired, row.nbytes) == (4, 16)
    assert "captures of 2 dropped steps are not stored" in str(run.summary())


def test_captures_around_a_dropped_step_of_another_phase_stay_counted(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "when": {"phases": ["train", "eval"]}}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0), run.step():
        model(torch.ones(2))
        with suppress(KeyError), run.phase("eval"), run.step():
            dropping(torch.ones(2), model)
        model(torch.ones(2))
    (row,) = run.summary().rows
    assert sum(map(len, probes.open(tmp_path / "r").series)) == row.captures == 2


def test_a_late_gradient_stays_counted_where_the_open_step_is_dropped(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    spec = {"version": 1, "probes": {"p": {"hook": "backward", "modules": ["0"]}}}
    with probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        with run.step():
            first = model(torch.ones(2)).sum()
        with suppress(KeyError), run.step():
            model(torch.ones(2)).sum().backward()
            first.backward()
            raise KeyError
    (row,) = run.summary().rows
    assert len(probes.open(tmp_path / "r")["p", "0"]) == row.captures == 1


def test_a_probe_that_fired_only_in_dropped_steps_has_captured_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
    with suppress(RunError), probes.attach(model, spec, out=tmp_path / "r") as run, run.epoch(0):
        for _ in range(2):
            with suppress(KeyError), run.step():
                dropping(torch.ones(2), model)
    (problem,) = run.summary().problems
    assert problem.message.endswith("captured nothing: every step in which it fired was dropped")


def test_every_missing_gradient_has_a_reason_also_one_whose_graph_still_exists(tmp_path: Path) -> None:
    class Keeps(Side):
        def forward(self, x: Tensor) -> Tensor:
            self.kept = self.part(x)
            return self.last(x)

    probe = {"hook": "backward", "modules": ["part", "last"]}
    run = run_with(Keeps(nn.Linear(4, 4), "dropped"), tmp_path, probe)
    (problem,) = run.summary().problems
    assert problem.message.endswith("missing in 3 of 3 steps that were due: unused output 2 times, no gradient came once")
