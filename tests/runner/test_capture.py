"""What hooks store, against values saved by hooks written by hand, in the same seeded run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import probes
from probes.errors import RunError

Loop = Callable[[nn.Module, Any], None]


class Block(nn.Module):
    """Two branches, an in-place ReLU behind a probed layer, keyword inputs and a dict output."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.relu = nn.ReLU(inplace=True)
        self.b = nn.Linear(8, 8)
        self.c = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.relu(self.a(x))
        hidden = hidden + self.b(input=hidden)
        return {"logits": self.c(hidden), "hidden": hidden}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def batches(count: int = 3, size: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(size, 4, generator=generator) for _ in range(count)]


def train(model: nn.Module, data: Any) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x in data:
        optimizer.zero_grad()
        out = model(x)
        loss = (out["logits"] if isinstance(out, dict) else out).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def record(model: nn.Module, path: Path, data: Any = None, loop: Any = train, **probe: Any) -> Any:
    """Run a loop with one probe called `p` and open what it wrote."""
    with probes.attach(model, {"version": 1, "name": "t", "probes": {"p": probe}}, out=path / "run") as run, run.epoch(0):
        loop(model, run.steps(batches() if data is None else data))
    return probes.open(path / "run")


def by_hand(model: nn.Module, path: str, kind: str) -> tuple[list[Tensor], list[Any]]:
    """Hooks as PyTorch's documentation writes them, with the clone it forgets."""
    saved: list[Tensor] = []
    module = model.get_submodule(path)
    if kind == "output":
        return saved, [module.register_forward_hook(lambda m, a, o: saved.append(o.detach().clone()))]
    if kind == "input":
        return saved, [
            module.register_forward_pre_hook(lambda m, a, k: saved.append((a[0] if a else k["input"]).detach().clone()), with_kwargs=True)
        ]

    def arm(_module: nn.Module, _args: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: saved.append(grad.detach().clone()))

    return saved, [module.register_forward_hook(arm)]


def clocks(series: Any) -> list[Any]:
    return [capture.clock for capture in series]


def same(series: Any, saved: list[Tensor]) -> None:
    stored = series.torch()
    assert len(stored) == len(saved) > 0
    for ours, theirs in zip(stored, saved, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("path", "hook", "kind", "leaf"),
    [
        ("a", "forward", "output", "output"),
        ("relu", "pre-forward", "input", "input.input"),
        ("b", "pre-forward", "input", "input.input"),
        ("a", "backward", "grad", "grad_output"),
        ("relu", "backward", "grad", "grad_output"),
        ("c", "backward", "grad", "grad_output"),
    ],
)
def test_stored_values_equal_those_of_hooks_written_by_hand(tmp_path: Path, path: str, hook: str, kind: str, leaf: str) -> None:
    model = Block()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    saved, handles = by_hand(model, path, kind)
    train(model, batches())
    for handle in handles:
        handle.remove()
    model.load_state_dict(state)
    read = record(model, tmp_path, hook=hook, modules=[path])
    same(read["p", path, leaf], saved)


def test_a_run_with_probes_cannot_be_told_from_one_without(tmp_path: Path) -> None:
    torch.manual_seed(3)
    plain = nn.Sequential(Block(), Last(), nn.Dropout(0.5), nn.Linear(2, 2))
    losses = train(plain, batches())
    random = torch.get_rng_state()
    torch.manual_seed(3)
    probed = nn.Sequential(Block(), Last(), nn.Dropout(0.5), nn.Linear(2, 2))
    with probes.attach(
        probed,
        {
            "version": 1,
            "probes": {
                "values": {"modules": ["**"], "values": ["input", "output", "grad_output", "grad_input_total"]},
                "weights": {"hook": "tensor", "tensors": ["**"], "values": ["grad", "data"]},
                "final": {"hook": "tensor", "tensors": ["3.weight"], "stage": "final"},
            },
        },
        out=tmp_path / "run",
    ) as run:
        assert train(probed, run.steps(batches())) == losses
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), probed.state_dict().values(), strict=True))


class Last(nn.Module):
    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return x["logits"]


def test_after_the_run_the_model_carries_nothing_of_ours(tmp_path: Path) -> None:
    model = Block()
    call = nn.Module.__call__
    record(model, tmp_path, modules=["**"], values=["input", "output", "grad_output", "grad_input"])
    assert nn.Module.__call__ is call
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
    for parameter in model.parameters():
        assert not parameter._backward_hooks
        assert not parameter._post_accumulate_grad_hooks


def test_an_exception_in_the_loop_leaves_nothing_behind_and_keeps_the_committed_steps(tmp_path: Path) -> None:
    model = Block()

    def broken() -> Iterator[Tensor]:
        yield from batches(2)
        raise ValueError("no more data")

    with pytest.raises(ValueError, match="no more data"):
        record(model, tmp_path, data=broken(), hook="forward", modules=["a"])
    read = probes.open(tmp_path / "run")
    assert len(read["p", "a"]) >= 1
    assert not model.a._forward_hooks


def test_a_dict_output_is_stored_leaf_by_leaf(tmp_path: Path) -> None:
    read = record(Block(), tmp_path, hook="forward", modules=[""])
    assert read["p", "", "output.logits"].numpy().shape == (3, 5, 2)
    assert read["p", "", "output.hidden"].numpy().shape == (3, 5, 8)


def test_a_value_path_picks_one_leaf(tmp_path: Path) -> None:
    read = record(Block(), tmp_path, modules=[""], values=["output.logits", "grad_output.logits"])
    assert sorted(leaf for leaf in read["p"][""]) == ["grad_output.logits", "output.logits"]


def test_a_value_path_that_leads_nowhere_fails_the_run_and_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no member `logit`; it has logits, hidden"):
        record(Block(), tmp_path, modules=[""], values=["output.logit"])


def test_grad_input_is_this_modules_share_and_the_total_is_over_all_consumers(tmp_path: Path) -> None:
    model = Block()
    full: list[Tensor] = []
    handle = model.c.register_full_backward_hook(lambda m, gi, go: full.append(gi[0].clone()))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, batches())
    handle.remove()
    model.load_state_dict(state)
    read = record(model, tmp_path, modules=["c"], values=["grad_input", "grad_input_total"])
    same(read["p", "c", "grad_input.input"], full)
    assert read["p", "c", "grad_input_total.input"].numpy().shape == (3, 5, 8)


def test_parameter_gradients_have_three_stages(tmp_path: Path) -> None:
    model = nn.Linear(4, 1, bias=False)

    def loop(model: nn.Module, data: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in data:
            optimizer.zero_grad()
            for _ in range(2):
                model(x).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()

    spec = {
        "version": 1,
        "probes": {stage: {"hook": "tensor", "tensors": ["weight"], "stage": stage} for stage in ("increment", "accumulated", "final")},
    }
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        loop(model, run.steps(batches(2)))
    read = probes.open(tmp_path / "run")
    increment, accumulated, final = (read[stage, "weight"].torch() for stage in ("increment", "accumulated", "final"))
    assert len(increment) == len(accumulated) == 4
    assert len(final) == 2
    assert torch.equal(accumulated[0], increment[0])
    assert torch.equal(accumulated[1], increment[0] + increment[1])
    assert torch.allclose(final[0].norm(), torch.tensor(0.5))


def test_data_is_the_parameter_that_the_steps_forward_used(tmp_path: Path) -> None:
    model = nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    read = record(model, tmp_path, hook="tensor", tensors=["weight"], values=["data"])
    assert torch.equal(read["p", "weight"].torch()[0], before)
    assert not torch.equal(read["p", "weight"].torch()[1], before)


def test_a_reference_names_the_gradient_of_a_modules_value(tmp_path: Path) -> None:
    model = Block()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    saved, handles = by_hand(model, "a", "grad")
    train(model, batches())
    handles[0].remove()
    model.load_state_dict(state)
    same(record(model, tmp_path, hook="tensor", tensors=["a:output"])["p", "a", "grad_output"], saved)


class Rewriting(nn.Module):
    """`Linear` on 3-D input returns a view, which the in-place ReLU then rewrites."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x.unsqueeze(0).expand(2, -1, -1))
        torch.relu_(hidden)
        return self.b(hidden)


def test_a_linear_whose_output_is_a_view_keeps_its_gradient_through_an_in_place_operation(tmp_path: Path) -> None:
    saved: list[Tensor] = []
    model = Rewriting()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    handle = model.a.register_forward_hook(lambda m, a, o: o.clone())  # a copy is no view; its gradient is the output's

    def arm(_m: nn.Module, _a: Any, output: Tensor) -> None:
        output.register_hook(lambda grad: saved.append(grad.clone()))

    second = model.a.register_forward_hook(arm)
    train(model, batches())
    handle.remove()
    second.remove()
    model.load_state_dict(state)
    same(record(model, tmp_path, hook="backward", modules=["a"])["p", "a"], saved)


class Slicing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.part(x * self.b.weight.sum())
        torch.relu_(hidden)
        return self.b(hidden)


class Part(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[1:]


def test_a_gradient_lost_to_an_in_place_operation_is_counted_with_that_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="3 times lost in-place"):
        record(Slicing(), tmp_path, hook="backward", modules=["part"])


def test_a_gradient_that_nothing_depends_on_is_counted_as_unused(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 2)
            self.unused = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.unused(x)
            return self.used(x)

    with pytest.raises(RunError, match="3 times unused output"):
        record(Two(), tmp_path, hook="backward", modules=["unused"])


def test_a_frozen_backbone_has_no_gradients_and_says_so(tmp_path: Path) -> None:
    model = Block()
    model.a.requires_grad_(False)
    with pytest.raises(RunError, match="3 times frozen"):
        record(model, tmp_path, hook="backward", modules=["a"])


def test_a_module_called_twice_is_told_apart_by_the_call(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(self.a(x))

    read = record(Twice(), tmp_path, modules=["a"], values=["output", "grad_output"])
    assert [clock.call for clock in clocks(read["p", "a", "output"])] == [0, 1] * 3
    assert [clock.call for clock in clocks(read["p", "a", "grad_output"])] == [0, 1] * 3
    first = record(Twice(), tmp_path / "first", hook="forward", modules=["a"], when={"calls": {"at": [1]}})
    assert [clock.call for clock in clocks(first["p", "a"])] == [1] * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_stores_each_value_and_gradient_once_with_the_first_passes_clock(tmp_path: Path, reentrant: bool) -> None:
    class Segmented(nn.Module):
        def __init__(self, checkpointed: bool) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.checkpointed = checkpointed

        def part(self, x: Tensor) -> Tensor:
            return self.b(torch.tanh(self.b(x)))

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x)
            for _ in range(2):
                x = checkpoint(self.part, x, use_reentrant=reentrant) if self.checkpointed else self.part(x)
            return x

    plain = record(Segmented(False), tmp_path / "plain", modules=["a", "b"], values=["output", "grad_output"])
    ours = record(Segmented(True), tmp_path / "ours", modules=["a", "b"], values=["output", "grad_output"])
    for target in ("a", "b"):
        for leaf in ("output", "grad_output"):
            assert clocks(ours["p", target, leaf]) == clocks(plain["p", target, leaf])
            assert torch.equal(ours["p", target, leaf].torch(), plain["p", target, leaf].torch())


def test_double_backward_and_a_retained_graph_count_the_firings(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            loss = model(x).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="backward", modules=["0"])
    assert [clock.backward for clock in clocks(read["p", "0"])] == [0, 1] * 3


def test_a_late_gradient_keeps_the_clock_of_its_forward(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        before = None
        for x in data:
            loss = model(x).square().mean()
            if before is not None:
                before.backward()
            before = loss

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="backward", modules=["0"])
    assert [clock.step for clock in clocks(read["p", "0"])] == [0, 1]


def test_gradient_accumulation_counts_microsteps(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    with probes.attach(model, {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}, out=tmp_path / "run") as run:
        for x in run.steps(batches(4), accumulate=2):
            model(x).sum().backward()
    found = clocks(probes.open(tmp_path / "run")["p", "0"])
    assert [(clock.step, clock.microstep) for clock in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_model_whose_root_is_never_called_is_followed_at_its_parts(tmp_path: Path) -> None:
    class Lightning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

        def training_step(self, x: Tensor) -> Tensor:
            return self.net(x) + self.net(x)

    def loop(model: Any, data: Any) -> None:
        for x in data:
            model.training_step(x).sum().backward()

    read = record(Lightning(), tmp_path, loop=loop, modules=["net.0"], values=["output"])
    assert [(clock.step, clock.microstep) for clock in clocks(read["p", "net.0"])] == [(s, m) for s in range(3) for m in range(2)]


def test_a_part_called_without_the_root_later_in_the_run_is_noticed(tmp_path: Path) -> None:
    def loop(model: Any, data: Any) -> None:
        for x in data:
            model(x)
            with torch.no_grad():
                model.eval()
                model[0](x)
                model.train()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"], when={"phases": ["train", "eval"]})
    assert len(read.sel(phase="train")["p", "0"]) == 3
    assert [clock.step for clock in clocks(read.sel(phase="eval")["p", "0"])] == [0, 1, 2]


def test_a_failing_transform_switches_the_probe_off_and_training_goes_on(tmp_path: Path) -> None:
    model = Block()
    with pytest.raises(RunError, match=r"probe `p` on `a` failed in epoch 0 step 0"):
        record(model, tmp_path, hook="forward", modules=["a"], dims=["one", "two", "three"])
    assert not model.a._forward_hooks


def test_a_copy_and_a_pickle_of_a_probed_model_are_inert(tmp_path: Path) -> None:
    import copy
    import pickle

    model = Block()
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["a"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps(batches(2)):
            model(x)
            copy.deepcopy(model)(x)
            pickle.loads(pickle.dumps(model))(x)
    assert len(probes.open(tmp_path / "run")["p", "a"]) == 2


def test_vmap_and_func_grad_are_skipped_with_the_reason(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            torch.vmap(model)(x)

    with pytest.raises(RunError, match="functorch transform"):
        record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"])


def test_a_keyboard_interrupt_in_a_forward_does_not_confuse_the_next_call(tmp_path: Path) -> None:
    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 2)
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            out: Tensor = self.a(x)
            if self.calls == 2:
                raise KeyboardInterrupt
            return out

    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            try:
                model(x)
            except KeyboardInterrupt:
                model(x)

    read = record(Interrupted(), tmp_path, loop=loop, hook="forward", modules=["a"])
    assert [(clock.step, clock.microstep) for clock in clocks(read["p", "a"])] == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_threads_that_call_the_model_lose_no_capture(tmp_path: Path) -> None:
    def loop(model: nn.Module, data: Any) -> None:
        for x in data:
            workers = [threading.Thread(target=model, args=(x,)) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()

    read = record(nn.Sequential(nn.Linear(4, 2)), tmp_path, loop=loop, hook="forward", modules=["0"])
    assert len(read["p", "0"]) == 12
