"""Runs a case three times, plainly, with hooks written by hand, and with probes, and compares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import torch
from torch import Tensor, nn

import probes
from tests.conformance.by_hand import ByHand, Saved
from tests.conformance.case import Case

VALUES = ["input", "output", "grad_output"]


@dataclass(frozen=True)
class Outcome:
    """What a case came to.

    Attributes:
        modules: modules that can be called.
        called: of these, how many were.
        values: inputs and outputs that were equal bit for bit.
        gradients: gradients of outputs that were equal bit for bit.
        more: gradients that PyTorch drops for a hook on the output (an in-place operation on a view) and that we have.
        unused: armed gradients that no backward reached, or whose hook PyTorch dropped; the accounts have the reason.
    """

    modules: int
    called: int
    values: int
    gradients: int
    more: int
    unused: int


@dataclass(frozen=True)
class Trace:
    """What has to be the same with probes and without."""

    losses: list[float]
    random: Tensor
    state: dict[str, Tensor]
    gradients: dict[str, Tensor | None]

    @classmethod
    def of(cls, model: nn.Module, losses: list[float]) -> Trace:
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        return cls(losses, torch.get_rng_state(), dict(model.state_dict()), gradients)

    def differences(self, other: Trace) -> list[str]:
        found = [] if self.losses == other.losses else [f"losses {self.losses} {other.losses}"]
        found += [] if torch.equal(self.random, other.random) else ["random state"]
        found += [name for name, value in self.state.items() if not same(value, other.state[name])]
        return found + [f"gradient of {name}" for name, value in self.gradients.items() if not same(value, other.gradients[name])]


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two tensors have the same bits, NaN included."""
    if one is None or other is None:
        return one is other
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = (value.detach().contiguous().reshape(-1).view(torch.uint8) for value in (one, other))
    return torch.equal(one, other)


def examine(case: Case, path: Path) -> Outcome:
    """Check a case; an AssertionError says what is wrong."""
    plain = case.model()
    batches = case.batches()
    torch.manual_seed(1)
    expected = Trace.of(plain, case.loop(plain, batches))

    reference = case.model(reference=True)
    hand = ByHand(reference)
    torch.manual_seed(1)
    case.loop(reference, batches)
    hand.remove()

    model = case.model()
    spec = {
        "version": 1,
        "name": "conformance",
        "defaults": {"when": {"phases": ["train", "eval"]}},
        "probes": {"p": {"modules": ["", "**"] if len(list(model.modules())) > 1 else [""], "values": VALUES, "expect": {"fires": "some"}}},
    }
    torch.manual_seed(1)
    random = torch.get_rng_state()
    with probes.attach(model, spec, out=path) as run, run.epoch(0):
        assert torch.equal(torch.get_rng_state(), random), "attaching drew random numbers"
        found = Trace.of(model, case.loop(model, batches))
    assert not expected.differences(found), expected.differences(found)
    no_residue(model, plain)
    accounts = complete(path, run)
    values, gradients, more = equal(path, hand.saved)
    return Outcome(
        modules=sum(type(module).forward is not nn.Module.forward for module in model.modules()),
        called=len(hand.called),
        values=values,
        gradients=gradients,
        more=more,
        unused=sum(_without(account) for account in accounts),
    )


def no_residue(model: nn.Module, plain: nn.Module) -> None:
    """Check that the model carries the hooks it has without probes."""
    for module, twin in zip(model.modules(), plain.modules(), strict=True):
        for table in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            assert len(getattr(module, table)) == len(getattr(twin, table)), f"{table} of a {type(module).__name__}"
    for parameter, twin_parameter in zip(model.parameters(), plain.parameters(), strict=True):
        assert bool(parameter._backward_hooks) == bool(twin_parameter._backward_hooks)
        assert not parameter._post_accumulate_grad_hooks


def complete(path: Path, run: Any) -> list[dict[str, Any]]:
    """Check that the counts of each account add up, and return the accounts."""
    with h5py.File(path / "epoch-0000.h5") as file:
        accounts: list[dict[str, Any]] = json.loads(file["closing"][()])["accounts"]
        stored = sum(series.shape[0] for series in _first_axes(file))
    assert len(accounts) == len(run.plan.bindings)
    assert sum(account["written"] for account in accounts) == stored
    for account in accounts:
        skipped = account["skipped"]
        place = f"{account['value']} of `{account['target']}`: {account}"
        assert account["expected"] == account["missed"] + _reached(account), place
        assert skipped.get("not reached", 0) <= account["missed"], place  # a call may have given nothing, too
        assert "error" not in account or set(skipped) <= {"no data", "not reached", "lost in-place", "unused output"}, place
        if account["value"] == "grad_output" and "armed" in account:
            assert account["armed"] == account["returned"] + _without(account), place
            assert account["written"] >= account["returned"], place
    return accounts


def _without(account: dict[str, Any]) -> int:
    """Armed tensors to which no gradient came."""
    skipped = account["skipped"]
    return int(skipped.get("unused output", 0) + skipped.get("lost in-place", 0) + account.get("alive", 0))


def _reached(account: dict[str, Any]) -> int:
    return int(account["expected"] - account["missed"]) if account["fired"] else 0


def _first_axes(file: Any) -> list[Any]:
    groups = [group for probe in file["captures"].values() for name, group in probe.items() if "loss_scale" not in name]
    return [group["step"] for group in groups]


def equal(path: Path, saved: Saved) -> tuple[int, int, int]:
    """Compare with what was saved by hand; how many values and gradients there are, and gradients that only we have."""
    ours: dict[tuple[str, str], dict[tuple[str, int, int, int], Tensor]] = {}
    for series in probes.open(path).series:
        members = ours.setdefault((series.key.target, series.key.leaf), {})
        for capture in series:
            clock = capture.clock
            tensor = torch.from_numpy(capture.value).to(getattr(torch, series.dtype))  # exact: bfloat16 comes as float32
            members[clock.phase, clock.step, clock.microstep, clock.call] = tensor
    counts = [0, 0, 0]
    outermost = _outermost(ours)
    for key, members in ours.items():
        theirs = saved.get(key, {})
        gradient = key[1].startswith("grad_")
        for at, tensor in members.items():
            place = (outermost[at[:3]], at[3])
            if gradient and place not in theirs:
                counts[2] += 1
                continue
            assert place in theirs, f"{key} at {at} is not among {sorted(leaf for path, leaf in saved if path == key[0])}"
            assert same(tensor, theirs[place].resolve_conj()), f"{key} at {at}"
            counts[gradient] += 1
    missing = {key for key, members in saved.items() if len(members) > len(ours.get(key, ()))}
    assert not missing, f"not captured: {sorted(missing)[:4]}"
    return counts[0], counts[1], counts[2]


def _outermost(ours: Mapping[Any, Mapping[tuple[str, int, int, int], Tensor]]) -> dict[tuple[str, int, int], int]:
    """The number of every outermost call, in order."""
    return {at: number for number, at in enumerate(sorted({at[:3] for members in ours.values() for at in members}))}
