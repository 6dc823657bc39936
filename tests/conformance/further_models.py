"""Models of kinds that no other case has: graphs of several kinds of nodes, flows, solvers, quantization, spectral and generated layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.conformance.case import Batch, Case

Nodes = dict[str, Tensor]


class Relation(nn.Module):
    """Attention from nodes of kind `b` to nodes of kind `a`."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, nodes: Nodes, edges: tuple[Tensor, Tensor]) -> Nodes:
        source, target = edges
        weight = (self.query(nodes["a"])[target] * self.key(nodes["b"])[source]).sum(-1).exp()
        total = torch.zeros(len(nodes["a"])).index_add(0, target, weight)
        sent = (weight / total[target])[:, None] * nodes["b"][source]
        return {"a": nodes["a"] + torch.zeros_like(nodes["a"]).index_add(0, target, sent), "b": nodes["b"]}


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({"a": nn.Linear(3, 5), "b": nn.Linear(2, 5)})
        self.relations = nn.ModuleList([Relation(), Relation()])
        self.head = nn.Linear(5, 1)

    def forward(self, x: Nodes, edges: tuple[Tensor, Tensor]) -> Tensor:
        nodes = {kind: self.encode[kind](value).tanh() for kind, value in x.items()}
        for relation in self.relations:
            nodes = relation(nodes, edges)
        result: Tensor = self.head(nodes["a"])
        return result


class Coupling(nn.Module):
    """A layer of a flow: one half of the state moves the other."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        still, moved = state[0].chunk(2, -1)
        scale, shift = self.net(still).chunk(2, -1)
        return torch.cat([moved * scale.tanh().exp() + shift, still], -1), state[1] + scale.tanh().sum(-1)


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Coupling(), Coupling(), Coupling())

    def forward(self, x: Tensor) -> Tensor:
        z, volume = self.layers((x, torch.zeros(len(x))))
        result: Tensor = z.square().sum(-1) / 2 - volume
        return result


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, time: float, y: Tensor) -> Tensor:
        result: Tensor = self.b(functional.gelu(self.a(y) + time))
        return result


class Solver(nn.Module):
    """Runge and Kutta's method: one module is called eight times."""

    def __init__(self) -> None:
        super().__init__()
        self.field = Field()

    def forward(self, y: Tensor) -> Tensor:
        width = 0.5
        for time in (0.0, width):
            one = self.field(time, y)
            two = self.field(time + width / 2, y + width / 2 * one)
            three = self.field(time + width / 2, y + width / 2 * two)
            y = y + width / 6 * (one + 2 * two + 2 * three + self.field(time + width, y + width * three))
        return y


class Quantized(NamedTuple):
    z: Tensor
    codes: Tensor
    commitment: Tensor


class Codebook(nn.Module):
    """Straight-through quantization, with a codebook that is moved in place."""

    book: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("book", torch.randn(7, 4))

    def forward(self, z: Tensor) -> Quantized:
        codes = torch.cdist(z.detach(), self.book).argmin(-1)
        chosen = self.book[codes].clone()
        with torch.no_grad():
            self.book.index_add_(0, codes, (z.detach() - chosen) * 0.01)
        return Quantized(z + (chosen - z).detach(), codes, (z - chosen).square().mean())


class Quantizing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.book = nn.Linear(6, 4), Codebook()
        self.decode = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(inplace=True), nn.Linear(8, 6))

    def forward(self, x: Tensor) -> tuple[Tensor, Quantized]:
        found = self.book(self.encode(x))
        return self.decode(found.z) - x + found.commitment, found


class Spectral(nn.Module):
    """A complex layer on the frequencies of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 4, dtype=torch.complex64) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = torch.fft.rfft(x, dim=-1)
        found = torch.einsum("bim,iom->bom", frequencies[..., :4], self.weight)
        return functional.pad(found, (0, frequencies.shape[-1] - 4))


class Operator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectral, self.skip, self.act = Spectral(), nn.Conv1d(2, 3, 1), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.act(torch.fft.irfft(self.spectral(x), n=16, dim=-1) + self.skip(x))
        return result


@dataclass
class Task:
    x: Tensor
    z: Tensor
    name: str


class Generated(nn.Module):
    """A layer whose weights are an input."""

    def forward(self, task: Task, weights: Nodes) -> Tensor:
        return torch.einsum("bi,boi->bo", task.x, weights["weight"]) + weights["bias"] * task.z.mean()


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generate, self.layer, self.encode = nn.Linear(3, 10), Generated(), nn.Linear(4, 4)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        made = self.generate(z)
        task = Task(self.encode(x), z * made.mean(), "task")
        result: Tensor = self.layer(task, {"weight": made[:, :8].view(-1, 2, 4), "bias": made[:, 8:]})
        return result


def graph() -> Batch:
    edges = (torch.randint(0, 6, (12,)), torch.cat([torch.arange(4), torch.randint(0, 4, (8,))]))
    return {"x": {"a": torch.randn(4, 3), "b": torch.randn(6, 2)}, "edges": edges}


CASES = (
    Case("graph", "dicts of nodes, sums over edges", Graph, graph),
    Case("flow", "a tuple from layer to layer", Flow, lambda: {"x": torch.randn(5, 4)}),
    Case("solver", "eight calls of one module with a number and a tensor", Solver, lambda: {"y": torch.randn(4, 3)}),
    Case("codebook", "a NamedTuple, a buffer written in place, a straight-through gradient", Quantizing, lambda: {"x": torch.randn(5, 6)}),
    Case("spectral", "complex parameters, values and gradients", Operator, lambda: {"x": torch.randn(3, 2, 16)}),
    Case("generator", "weights and a dataclass as inputs", Generator, lambda: {"x": torch.randn(5, 4), "z": torch.randn(5, 3)}),
)
