"""Values that hooks store, compared with values saved by hooks written by hand, in the same seeded run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError
from tests.rounding import after, within
from tests.runner.capturing import Block, batches, by_hand, record, same, train


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


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


def test_a_run_with_probes_cannot_be_distinguished_from_one_without(tmp_path: Path) -> None:
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


def test_after_the_run_the_model_carries_nothing_of_probes(tmp_path: Path) -> None:
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


def test_an_exception_in_the_loop_leaves_no_hooks_and_keeps_the_committed_steps(tmp_path: Path) -> None:
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


def test_a_value_path_without_a_value_fails_the_run_with_the_existing_members(tmp_path: Path) -> None:
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
    whole = accumulated[1].double().norm()
    assert within(final[0].double().norm(), whole * 0.5 / (whole + 1e-6), after(accumulated[1].numel() + 5))  # torch adds the 1e-6


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


def test_a_key_of_an_output_that_no_file_can_hold_is_stored_by_its_escapes_and_ends_nothing(tmp_path: Path) -> None:
    class Keyed(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"\ud800": x, "x": x + 1}

    model = nn.Sequential(Keyed())
    spec = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"]}}}
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([torch.ones(1), torch.ones(1)]):
            model(x)
    read = probes.open(tmp_path / "run")
    assert {key.leaf: len(read[key.probe, key.target, key.leaf]) for key in (one.key for one in read.series)} == {
        'output."\\\\ud800"': 2,
        "output.x": 2,
    }
