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
from probes.plan.reachable import reachable


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
    """Parts that each get one tensor in a container of another kind; the tensor has another consumer, whose share is 3."""

    def __init__(self, parts: dict[str, tuple[nn.Module, Callable[[Tensor], Any]]]) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.parts = nn.ModuleDict({name: part for name, (part, _) in parts.items()})
        self.packs = {name: pack for name, (_, pack) in parts.items()}

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for name, part in self.parts.items():
            hidden = self.first(x) + 0
            aside = (hidden * 3).sum()
            torch.manual_seed(1)
            total = total + part(self.packs[name](hidden)).sum() + aside
        return total


def captured(net: nn.Module, values: list[str], path: Path) -> Any:
    spec = {"version": 1, "name": "t", "probes": {"p": {"modules": ["parts.*"], "values": values, "expect": {"fires": "each_step"}}}}
    with probes.attach(net, spec, out=path / "run") as run:
        for x in run.steps([X]):
            net(x).backward()
    return probes.open(path / "run")


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


def test_the_share_of_a_module_is_captured_through_every_container_that_can_be_rebuilt(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net({kind: (Part(reach), pack) for kind, (pack, reach, _) in KINDS.items()})
    found = captured(net, ["grad_input", "grad_input_total", "input"], tmp_path)
    for kind, (pack, _, leaf) in KINDS.items():
        alone = net.first(X).detach().requires_grad_()
        (share,) = torch.autograd.grad(net.parts[kind](pack(alone)).sum(), alone)
        assert torch.equal(found["p", f"parts.{kind}", f"grad_input.batch{leaf}"].torch()[0], share), kind
        assert torch.equal(found["p", f"parts.{kind}", f"grad_input_total.batch{leaf}"].torch()[0], share + 3), kind
        assert torch.equal(found["p", f"parts.{kind}", f"input.batch{leaf}"].torch()[0], alone.detach()), kind


def test_the_total_never_replaces_a_share_that_cannot_be_captured(tmp_path: Path) -> None:
    proxy = (Part(lambda value: value["x"]), lambda x: MappingProxyType({"x": x}))
    net = Net({"closed": (Part(lambda value: value.x), Closed), "proxy": proxy})
    with pytest.raises(RunError) as raised:
        captured(net, ["grad_input.batch.x", "grad_input_total.batch.x"], tmp_path)
    for place in ("closed", "proxy"):
        assert f"`grad_input.batch.x` of `parts.{place}` is missing in 1 of 1 steps that were due: no share once" in str(raised.value)
        assert list(probes.open(tmp_path / "run")["p"][f"parts.{place}"]) == ["grad_input_total.batch.x"]


class SharedItems(UserDict[str, Any]):
    """A mapping whose copy shares its items."""

    def __copy__(self) -> SharedItems:
        other = SharedItems()
        other.data = self.data
        return other


def test_a_container_whose_copy_shares_its_members_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    made: list[tuple[Any, Tensor]] = []

    def pack(x: Tensor) -> Any:
        made.append((SharedItems(x=x), x))
        return made[-1][0]

    net = Net({"shared": (Part(lambda value: value["x"]), pack)})
    with pytest.raises(RunError, match=r"`grad_input.batch.x` of `parts.shared` .*no share once"):
        captured(net, ["grad_input.batch.x", "input"], tmp_path)
    assert all(box["x"] is x for box, x in made)
    assert not reachable(made[0][0], "input.batch")["input.batch.x"].shared


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


WRITTEN: list[Callable[[Tensor], Any]] = [
    lambda x: [x],
    lambda x: deque([x]),
    lambda x: OrderedDict(x=x, gone=1),
    lambda x: {"x": x, "gone": 1},
    lambda x: SimpleNamespace(x=x),
    Own,
    Batch,
]


def test_values_that_a_module_writes_into_its_input_reach_the_program(tmp_path: Path) -> None:
    packed: list[tuple[Any, Tensor]] = []

    def keeping(pack: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def keep(x: Tensor) -> Any:
            packed.append((pack(x), x))
            return packed[-1][0]

        return keep

    net = Net({str(at): (Writes(), keeping(pack)) for at, pack in enumerate(WRITTEN)})
    found = captured(net, ["grad_input", "output"], tmp_path)
    for at, (batch, x) in enumerate(packed):
        seen = (
            list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, list | deque) else [*vars(batch).values()]
        )
        assert seen[0] is x
        assert torch.equal(seen[-1], x * 2)
        assert 1 not in seen[1:-1]
        (leaf,) = (leaf for leaf in found["p"][f"parts.{at}"] if leaf.startswith("grad"))
        assert torch.equal(found["p", f"parts.{at}", leaf].torch()[0], torch.full((3, 4), 2.0))
    assert not any(part._forward_hooks for part in net.parts.values())


REWRITING = (nn.ReLU, nn.SiLU, nn.LeakyReLU, nn.Hardtanh, nn.Dropout, nn.ELU)


def test_the_share_of_a_module_that_rewrites_its_input_is_captured_and_not_the_total(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole: dict[str, Callable[[Tensor], Tensor]] = {"tensor": lambda x: x, "view": lambda x: x.view(-1, 2)}
    cases = {f"{make.__name__} {name}": (make(inplace=True), pack) for make in REWRITING for name, pack in whole.items()}
    net = Net({**cases, "part": (nn.ReLU(inplace=True), lambda x: x[:2])})
    with pytest.raises(RunError, match=r"`parts.part` .*the module does not rewrite its input by one operation"):
        captured(net, ["grad_input"], tmp_path)
    found = probes.open(tmp_path / "run")
    for name, (part, pack) in cases.items():
        alone = net.first(X).detach().requires_grad_()
        torch.manual_seed(1)
        (share,) = torch.autograd.grad(part(pack(alone + 0)).sum(), alone)
        assert torch.equal(found["p", f"parts.{name}"].torch()[0].view(3, 4), share), name
    assert "parts.part" not in found["p"]
    assert not any(part._forward_hooks for part in net.parts.values())
