"""What optimizers do to parameters, against copies made by hand around each step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import probes
from probes.errors import PlanError, ProbesError, RunError, SpecError
from probes.runner.attached.optimizer_steps import RunningStep
from tests.runner.in_memory import in_memory

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
Make = Callable[[nn.Module], Optimizer]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def probe(**keys: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {"p": {"hook": "tensor", "tensors": ["**"], "values": ["update"], **keys}}}


def loss_of(model: nn.Module) -> Tensor:
    return model(X.to(next(model.parameters()).dtype)).square().mean()


def ordinary(model: nn.Module, optimizer: Optimizer) -> None:
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def with_closure(model: nn.Module, optimizer: Any) -> None:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    optimizer.step(closure)


def looped(run: Any, model: nn.Module, body: Callable[[int], None], steps: int) -> dict[str, list[Tensor]]:
    """Run a loop, and return what a copy around each step gives, by parameter."""
    by_hand: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    with run.epoch(0):
        for index in run.steps(range(steps)):
            before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
            body(index)
            for name, parameter in model.named_parameters():
                by_hand[name].append(parameter.detach() - before[name])
    return by_hand


def train(model: nn.Module, spec: Any, body: Callable[[int], None], steps: int = 4) -> tuple[Any, dict[str, list[Tensor]]]:
    """What a run in memory captured, and what a copy around each step gives, by parameter."""
    with in_memory(model, spec) as run:
        by_hand = looped(run, model, body, steps)
    return run.found, by_hand


def agree(run: Any, by_hand: dict[str, list[Tensor]], steps: list[int]) -> None:
    for name, changes in by_hand.items():
        series = run["p", name, "update"]
        assert series.steps.tolist() == steps
        assert torch.equal(series.torch(), torch.stack(changes)[steps])


TORCH: dict[str, Make] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False),
    "sgd-foreach": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "sgd-fused": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, fused=True),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True, maximize=True),
    "adamw-foreach": lambda model: torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True),
    "adam-fused": lambda model: torch.optim.Adam(model.parameters(), lr=0.1, fused=True),
    "adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.1),
    "rprop": lambda model: torch.optim.Rprop(model.parameters(), lr=0.1),
    "asgd": lambda model: torch.optim.ASGD(model.parameters(), lr=0.1),
}


def test_an_update_equals_the_difference_of_copies_around_the_step_and_the_state_is_the_one_after_it(tmp_path: Path) -> None:
    """Every optimizer steps a part of its own, in one run."""
    model, free = (nn.ModuleDict({name: net() for name in TORCH}) for _ in range(2))
    optimizers = {name: make(model[name]) for name, make in TORCH.items()}
    others = {name: make(free[name]) for name, make in TORCH.items()}
    states: list[dict[str, dict[str, Tensor]]] = []

    def body(_: int) -> None:
        for name in TORCH:
            ordinary(model[name], optimizers[name])
            ordinary(free[name], others[name])
        kept = {name: one.state[model[name][2].weight] for name, one in optimizers.items()}  # type: ignore[index]  # the model is a Sequential
        states.append({name: {key: torch.as_tensor(value).clone() for key, value in one.items()} for name, one in kept.items()})

    with probes.attach(model, probe(values=["update", "state"], when={"steps": {"every": 2}}), out=tmp_path / "run") as attached:
        by_hand = looped(attached, model, body, 4)
    assert probes.verify(tmp_path / "run").ok
    run = probes.open(tmp_path / "run")
    agree(run, by_hand, [0, 2])
    for name in TORCH:
        for key in states[0][name]:
            found = run["p", f"{name}.2.weight", f"state.{key}"].torch()
            assert torch.equal(found, torch.stack([states[0][name][key], states[2][name][key]]))
        assert len([one for one in run.series if one.key.target == f"{name}.2.weight"]) == 1 + len(states[0][name])
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), free.parameters(), strict=True))


def test_lbfgs_gives_one_update_for_a_step_whose_closure_calls_the_model_many_times() -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    spec = probe(when={"steps": {"every": 3}})
    spec["probes"]["vectors"] = {"hook": "tensor", "tensors": ["0.weight"], "values": ["state.n_iter", "state.d"]}
    run, by_hand = train(model, spec, lambda _: with_closure(model, optimizer))
    agree(run, by_hand, [0, 3])
    state = optimizer.state[model[0].weight]  # type: ignore[index]  # the model is a Sequential
    assert run["vectors", "0.weight", "state.n_iter"].numpy().tolist()[-1] == state["n_iter"]
    assert torch.equal(run["vectors", "0.weight", "state.d"].torch()[-1], state["d"])


def test_without_a_loader_a_closure_opens_the_step_that_its_update_belongs_to() -> None:
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    by_hand = []
    spec = probe(tensors=["0.weight"], when={"steps": {"every": 2}})
    with in_memory(model, spec) as run:
        for _ in range(5):
            before = model[0].weight.detach().clone()  # type: ignore[index,operator]  # the model is a Sequential
            with_closure(model, optimizer)
            by_hand.append(model[0].weight.detach() - before)  # type: ignore[index,operator]  # the model is a Sequential
    series = run.found["p", "0.weight"]
    assert series.steps.tolist() == [0, 2, 4]
    assert torch.equal(series.torch(), torch.stack(by_hand)[::2])


def test_steps_that_are_not_due_copy_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = RunningStep.__init__
    monkeypatch.setattr(RunningStep, "__init__", lambda *args: (made.append(1), original(*args))[1])  # type: ignore[func-returns-value]  # `append` and `__init__` return None
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, probe(when={"steps": {"every": 10}}), lambda _: ordinary(model, optimizer), 12)
    assert len(made) == 2


def test_a_step_that_a_scaler_skips_has_no_update_and_is_counted() -> None:
    model = nn.ModuleList([net(), net()])
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.1, fused=index == 1) for index, part in enumerate(model)]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def body(index: int) -> None:
        losses = [loss_of(part) for part in model]
        for optimizer, loss in zip(optimizers, losses, strict=True):
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss * (float("inf") if index == 1 else 1.0)).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    with in_memory(model, probe(values=["update", "state.exp_avg"])) as run:
        by_hand = looped(run, model, body, 4)
    agree(run.found, by_hand, [0, 2, 3])
    assert run.found["p", "1.0.bias", "state.exp_avg"].steps.tolist() == [0, 2, 3]
    for target in ("0.0.bias", "1.0.bias"):
        assert run.account("p", target, "update")["skipped"] == {"no optimizer step": 1}


def test_several_optimizers_and_several_steps_of_one_are_numbered() -> None:
    """A critic is stepped twice on each batch, the generator once; neither holds the parameters of the other."""
    model = net()
    first, second = torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters(), lr=0.1)  # type: ignore[index]  # the model is a Sequential
    by_hand: list[Tensor] = []

    def body(_: int) -> None:
        for optimizer in (first, first, second):
            before = model[0].weight.detach().clone()  # type: ignore[index,operator]  # the model is a Sequential
            ordinary(model, optimizer)
            if optimizer is first:
                by_hand.append(model[0].weight.detach() - before)  # type: ignore[index,operator]  # the model is a Sequential

    run, _ = train(model, probe(tensors=["*.weight"]), body, 2)
    series = run["p", "0.weight"]
    assert [(int(one["step"]), int(one["call"])) for one in series.clocks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert torch.equal(series.torch(), torch.stack(by_hand))
    assert run["p", "2.weight"].steps.tolist() == [0, 1]


class Lookahead(Optimizer):
    """Steps another optimizer, and pulls the weights back to slow ones; the moments stay in the inner one."""

    def __init__(self, inner: Optimizer) -> None:
        super().__init__([one for group in inner.param_groups for one in group["params"]], {})
        self.inner = inner

    def step(self, closure: Any = None) -> None:
        slow = [one.detach().clone() for one in self.param_groups[0]["params"]]
        self.inner.step()
        with torch.no_grad():
            for one, kept in zip(self.param_groups[0]["params"], slow, strict=True):
                one.copy_(kept + 0.5 * (one - kept))


class MasterWeights(Optimizer):
    """Steps float32 copies of half-precision parameters; the state is kept under the copies."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.masters = [one.detach().float().requires_grad_() for one in self.param_groups[0]["params"]]
        self.inner = torch.optim.Adam(self.masters, lr=0.1)

    def step(self, closure: Any = None) -> None:
        for master, one in zip(self.masters, self.param_groups[0]["params"], strict=True):
            master.grad = one.grad.float()
        self.inner.step()
        with torch.no_grad():
            for master, one in zip(self.masters, self.param_groups[0]["params"], strict=True):
                one.copy_(master)


def test_a_wrapper_gives_the_update_of_its_whole_step_and_the_state_of_the_optimizer_within() -> None:
    model = net()
    inner = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer = Lookahead(inner)
    run, by_hand = train(model, probe(values=["update", "state.exp_avg"]), lambda _: ordinary(model, optimizer))
    agree(run, by_hand, [0, 1, 2, 3])
    assert torch.equal(run["p", "2.bias", "state.exp_avg"].torch()[-1], inner.state[model[2].bias]["exp_avg"])  # type: ignore[index]  # the model is a Sequential


def test_state_that_is_kept_elsewhere_is_missing_with_that_reason(capsys: pytest.CaptureFixture[str]) -> None:
    model = net().half()
    optimizer = MasterWeights(model.parameters())
    wanted = probe(tensors=["0.weight", "2.bias"], values=["update", "state.exp_avg"])
    by_hand: list[Tensor] = []

    def body(_: int) -> None:
        before = model[2].bias.detach().clone()  # type: ignore[index,operator]  # the model is a Sequential
        ordinary(model, optimizer)
        by_hand.append(model[2].bias.detach() - before)  # type: ignore[index,operator]  # the model is a Sequential

    with (
        pytest.raises(RunError, match=r"`state.exp_avg` of `0.weight` is missing in 2 of 2 .*: no state 2 times"),
        in_memory(model, wanted) as run,
    ):
        looped(run, model, body, 2)
    assert torch.equal(run.found["p", "2.bias"].torch(), torch.stack(by_hand))
    assert "the `state` of the optimizer `MasterWeights` has no entry for the parameter" in capsys.readouterr().err


def test_a_step_that_raised_does_not_count_and_does_not_hide_another() -> None:
    model = net()
    first, second = torch.optim.LBFGS(model.parameters(), max_iter=1), torch.optim.SGD(model.parameters(), lr=0.1)

    def body(index: int) -> None:
        if index % 2:

            def closure() -> Tensor:
                loss_of(model)
                raise ValueError("of the closure")

            with pytest.raises(ValueError, match="of the closure"):
                first.step(closure)
        ordinary(model, second)

    run, by_hand = train(model, probe(), body)
    agree(run, by_hand, [0, 1, 2, 3])


def test_a_step_that_began_before_the_run_has_state_but_no_update() -> None:
    """As around a script whose first call of the model is in a closure."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)
    with ExitStack() as stack:
        runs: list[Any] = []

        def closure() -> Tensor:
            if not runs:
                runs.append(stack.enter_context(in_memory(model, probe(tensors=["0.weight"], values=["update", "state.n_iter"]))))
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
    assert runs[0].found["p", "0.weight", "update"].steps.tolist() == [1, 2]
    assert runs[0].found["p", "0.weight", "state.n_iter"].numpy().tolist() == [1, 2, 3]
    assert runs[0].account("p", "0.weight", "update")["skipped"] == {"unknown before": 1}


def test_optimizers_that_step_within_the_backward_are_seen() -> None:
    model = net()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def step(parameter: Tensor, optimizer: Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]  # untyped in torch
    run, by_hand = train(model, probe(), lambda _: loss_of(model).backward())
    agree(run, by_hand, [0, 1, 2, 3])


def test_parameters_that_are_tied_unfrozen_added_or_without_a_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.unused = (nn.Linear(4, 4) for _ in range(4))
            self.b.weight = self.a.weight
            self.c.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.c(self.b(self.a(x)))
            return found

    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.Adam([*model.a.parameters(), model.b.bias, *model.unused.parameters()], lr=0.1)

    def body(index: int) -> None:
        if index == 2:
            model.c.requires_grad_(True)
            optimizer.add_param_group({"params": model.c.parameters(), "lr": 1.0})
        ordinary(model, optimizer)

    run, by_hand = train(model, probe(values=["update", "state.exp_avg"]), body)
    assert {one.key.target for one in run.series if one.key.leaf == "update"} == {
        *("a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias", "unused.weight", "unused.bias")
    }
    assert torch.equal(run["p", "a.weight", "update"].torch(), torch.stack(by_hand["a.weight"]))
    assert torch.equal(run["p", "b.weight", "update"].torch(), torch.stack(by_hand["a.weight"]))
    assert torch.equal(run["p", "c.weight", "update"].torch(), torch.stack(by_hand["c.weight"])[2:])
    assert run["p", "c.weight", "state.exp_avg"].steps.tolist() == [2, 3]
    assert not run["p", "unused.weight", "update"].numpy().any()
    assert ("p", "unused.weight", "state.exp_avg") not in {(*one.key[:2], one.key.leaf) for one in run.series}
    assert "Traceback" not in capsys.readouterr().err


def test_a_replaced_parameter_is_not_a_parameter_of_the_optimizer() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(index: int) -> None:
        if index == 2:
            model[0].weight = nn.Parameter(model[0].weight.detach().clone())  # type: ignore[index,operator]  # the model is a Sequential
        ordinary(model, optimizer)

    run, by_hand = train(model, probe(tensors=["0.weight", "2.weight"], expect={"fires": "some"}), body)
    assert run["p", "0.weight"].steps.tolist() == [0, 1]
    assert torch.equal(run["p", "2.weight"].torch(), torch.stack(by_hand["2.weight"]))


def test_calls_in_hooks_of_the_program_around_a_step_belong_to_the_step() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def clamp(*_: object) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-0.1, 0.1)

    optimizer.register_step_post_hook(clamp)
    run, by_hand = train(model, probe(), lambda _: ordinary(model, optimizer))
    agree(run, by_hand, [0, 1, 2, 3])


def test_several_probes_share_one_copy_and_have_separate_transforms() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keys = {"hook": "tensor", "tensors": ["0.weight"]}
    spec = {
        "version": 1,
        "probes": {
            "p": {**keys, "values": ["update", "grad", "data"], "stage": "final"},
            "norm": {**keys, "values": ["update"], "transforms": [{"kind": "norm"}]},
        },
    }
    run, by_hand = train(model, spec, lambda _: ordinary(model, optimizer))
    changes = torch.stack(by_hand["0.weight"])
    assert torch.equal(run["p", "0.weight", "update"].torch(), changes)
    assert torch.allclose(run["p", "0.weight", "grad"].torch() * -0.1, changes, atol=1e-7)
    assert len(run["p", "0.weight", "data"]) == 4
    assert torch.allclose(run["norm", "0.weight"].torch(), changes.flatten(1).norm(dim=1))


def test_without_an_optimizer_nothing_is_captured_and_the_run_reports_the_reason() -> None:
    """Of two models one has no optimizer, and the optimizer of the other keeps no such state."""
    model = nn.ModuleList([net(), net()])
    optimizer = torch.optim.Adam(model[1].parameters(), lr=0.1)
    spec = probe(tensors=["0.**"])
    spec["probes"]["q"] = {"hook": "tensor", "tensors": ["1.0.weight"], "values": ["state.momentum"]}
    with pytest.raises(RunError) as caught:
        train(model, spec, lambda _: ordinary(model[1], optimizer), 1)
    assert "probe `p` captured nothing: 4 times no optimizer step" in str(caught.value)
    assert "`state` has no member `momentum`; it has step, exp_avg, exp_avg_sq" in str(caught.value)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "keys of an update": ({"values": ["update.0"]}, "value-keys"),
    "stage": ({"stage": "final"}, "no-effect"),
    "microsteps": ({"when": {"microsteps": {"at": [0]}}}, "no-effect"),
    "calls": ({"when": {"calls": {"at": [0]}}}, "no-effect"),
    "of a module": ({"tensors": (), "modules": ["0"], "hook": "forward"}, "hook-and-value"),
    "of a module's value": ({"tensors": ["0:output"]}, "value-and-place"),
    "name": ({"values": ["updates"]}, "value-path"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_spec_that_cannot_work_is_refused(case: str) -> None:
    keys, code = WRONG[case]
    with pytest.raises(SpecError) as caught:
        probes.load(probe(**keys))
    assert [one.code for one in caught.value.problems] == [code]


@pytest.mark.parametrize(("target", "values"), [("0.weight", ["state.exp_avg"]), ("1.running_mean", ["update"])])
def test_tensors_that_no_optimizer_steps_are_refused(target: str, values: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.BatchNorm1d(4))
    with pytest.raises(PlanError) as caught:
        probes.resolve(probe(tensors=[target], values=values), model)
    assert [one.code for one in caught.value.problems] == ["frozen-parameter"]


def test_an_update_cannot_be_edited() -> None:
    wanted = probe(edit={"kind": "zero"}) | {"allow_edits": True}
    with pytest.raises(ProbesError, match="`update` is what an optimizer has done, and cannot be edited"):
        probes.resolve(wanted, net())
