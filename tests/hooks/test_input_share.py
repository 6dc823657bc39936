"""`grad_input` is the module's share in whatever container the input comes, and what a module writes into the container is kept."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import probes
from probes.errors import RunError


@dataclasses.dataclass
class Batch:
    x: Tensor
    size: int = 3
    unset: int = dataclasses.field(init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Tensor


class Pair(NamedTuple):
    x: Tensor
    size: int


class Listed(list[Any]):
    """A list of the program's own class."""


class Own:
    """A class that only a rule of pytree can rebuild."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


class Closed:
    """A class that nothing can rebuild."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


pytree.register_pytree_node(Own, lambda own: ([own.x], None), lambda members, _: Own(*members))

KINDS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], str]] = {
    "tensor": (lambda x: x, lambda value: value, ""),
    "tuple": (lambda x: (x, 3), lambda value: value[0], ".0"),
    "list": (lambda x: [x], lambda value: value[0], ".0"),
    "own list": (lambda x: Listed([x]), lambda value: value[0], ".0"),
    "dict": (lambda x: {"x": x}, lambda value: value["x"], ".x"),
    "nested": (lambda x: {"x": [Batch(x)]}, lambda value: value["x"][0].x, ".x.0.x"),
    "ordered": (lambda x: OrderedDict(x=x), lambda value: value["x"], ".x"),
    "defaultdict": (lambda x: defaultdict(list, x=x), lambda value: value["x"], ".x"),
    "userdict": (lambda x: UserDict(x=x), lambda value: value["x"], ".x"),
    "dataclass": (Batch, lambda value: value.x, ".x"),
    "frozen": (Frozen, lambda value: value.x, ".x"),
    "slots": (Slotted, lambda value: value.x, ".x"),
    "namedtuple": (lambda x: Pair(x, 3), lambda value: value.x, ".x"),
    "return type": (lambda x: torch.return_types.max((x, torch.zeros(3))), lambda value: value.values, ".values"),
    "deque": (lambda x: deque([x]), lambda value: value[0], ".0"),
    "namespace": (lambda x: SimpleNamespace(x=x), lambda value: value.x, ".x"),
    "pytree": (Own, lambda value: value.x, ".0"),
}


class Part(nn.Module):
    def __init__(self, reach: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)
        self.reach = reach

    def forward(self, batch: Any) -> Tensor:
        x = self.reach(batch)
        return torch.tanh(self.line(x)) * x


class Net(nn.Module):
    """The input of `part` has another consumer, whose share is twice itself."""

    def __init__(self, pack: Callable[[Tensor], Any], reach: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.part = Part(reach)
        self.pack = pack

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.part(self.pack(hidden)).sum() + (hidden * hidden).sum()


def captured(net: nn.Module, values: list[str], path: Path, **options: Any) -> Any:
    spec = {"version": 1, "name": "t", "probes": {"p": {"modules": ["part"], "values": values, **options}}}
    with probes.attach(net, spec, out=path / "run") as run:
        for x in run.steps([X]):
            net(x).backward()
    return probes.open(path / "run")


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_a_module_is_had_through_every_container_that_can_be_rebuilt(tmp_path: Path, kind: str) -> None:
    pack, reach, leaf = KINDS[kind]
    torch.manual_seed(0)
    net = Net(pack, reach)
    alone = net.first(X).detach().requires_grad_()
    (share,) = torch.autograd.grad(net.part(pack(alone)).sum(), alone)
    found = captured(net, ["grad_input", "grad_input_total", "input"], tmp_path)
    assert torch.equal(found["p", "part", f"grad_input.batch{leaf}"].torch()[0], share)
    assert torch.equal(found["p", "part", f"grad_input_total.batch{leaf}"].torch()[0], share + 2 * alone.detach())
    assert torch.equal(found["p", "part", f"input.batch{leaf}"].torch()[0], alone.detach())


@pytest.mark.parametrize("pack", [Closed, lambda x: MappingProxyType({"x": x})], ids=["class", "proxy"])
def test_the_total_never_takes_the_place_of_a_share_that_cannot_be_had(tmp_path: Path, pack: Callable[[Tensor], Any]) -> None:
    net = Net(pack, lambda value: value["x"] if isinstance(value, MappingProxyType) else value.x)
    with pytest.raises(RunError, match=r"`grad_input.batch.x` of `part` no share once: its container cannot be rebuilt"):
        captured(net, ["grad_input.batch.x"], tmp_path)
    (tmp_path / "total").mkdir()
    found = captured(net, ["grad_input_total.batch.x"], tmp_path / "total")
    assert len(found["p", "part"]) == 1


class Writes(nn.Module):
    """Writes into the container that it is given, as a cache of keys and values is written."""

    def forward(self, batch: Any) -> Tensor:
        if isinstance(batch, list | deque):
            batch.append(batch[0] * 2)
            return batch[-1]
        if isinstance(batch, dict):
            batch["new"] = batch["x"] * 2
            batch.pop("gone")
            return batch["new"]
        batch.new = batch.x * 2
        return batch.new


@pytest.mark.parametrize(
    "pack",
    [
        lambda x: [x],
        lambda x: deque([x]),
        lambda x: OrderedDict(x=x, gone=1),
        lambda x: {"x": x, "gone": 1},
        lambda x: SimpleNamespace(x=x),
        Own,
        Batch,
    ],
    ids=["list", "deque", "ordered", "dict", "namespace", "pytree", "dataclass"],
)
def test_what_a_module_writes_into_its_input_reaches_the_program(tmp_path: Path, pack: Callable[[Tensor], Any]) -> None:
    spec = {"version": 1, "name": "t", "probes": {"p": {"modules": ["part"], "values": ["grad_input"]}}}

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.part = nn.Linear(4, 4), Writes()

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x)
            batch = pack(hidden)
            result = self.part(batch)
            seen = dict(batch) if isinstance(batch, dict) else list(batch) if isinstance(batch, list | deque) else vars(batch)
            members = list(seen.values()) if isinstance(seen, dict) else seen
            assert members[0] is hidden
            assert members[-1] is result
            assert "gone" not in seen
            return result.sum()

    model = Whole()
    with probes.attach(model, spec, out=tmp_path / "run") as run:
        for x in run.steps([X, X]):
            model(x).backward()
    assert torch.equal(probes.open(tmp_path / "run")["p", "part"].torch()[1], torch.full((3, 4), 2.0))
    assert not model.part._forward_hooks
