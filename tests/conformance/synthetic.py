"""Small models, one for each trap of hooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_sequence
from torch.utils.checkpoint import checkpoint

from tests.conformance.case import Batch, Case, loss_of, train


class Net(nn.Module):
    """Parts by name, and what is computed with them."""

    def __init__(self, compute: Any, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.compute = compute

    def forward(self, x: Tensor) -> Any:
        return self.compute(self, x)


class Through(nn.Module):
    """Applies a function, which may return anything."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, scale: float = 1.0, **more: Any) -> Any:
        return self.function(x * scale, **more)


@dataclass
class Answer:
    first: Tensor
    rest: dict[str, Any]


class Pair(NamedTuple):
    one: Tensor
    other: Tensor | None


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def linear(inside: int = 4, outside: int = 4, bias: bool = True) -> nn.Linear:
    return nn.Linear(inside, outside, bias=bias)


def flat() -> Batch:
    return {"x": torch.randn(3, 4)}


def deep() -> Batch:
    return {"x": torch.randn(2, 3, 4)}


def images() -> Batch:
    return {"x": torch.randn(2, 3, 8, 8)}


def in_place(net: Any, x: Tensor) -> Tensor:
    hidden = net.a(x)
    hidden += 1
    hidden.relu_()
    return net.b(hidden)


def dense(net: Any, x: Tensor) -> Tensor:
    found = [x]
    for part in (net.a, net.b):
        found.append(part(torch.relu_(net.norm(torch.cat([*found, *found][:2], 1)))))
    return torch.cat(found, 1)


def recurrent(net: Any, x: Tensor) -> Tensor:
    state = x[:, 0]
    for index in range(x.shape[1]):
        state = net.cell(x[:, index], state)
    return net.last(state)


def packed(net: Any, x: Tensor) -> Tensor:
    output, _ = net.rnn(pack_sequence([x[0], x[1, :2]]))
    return net.last(output.data)


def nested(net: Any, x: Tensor) -> Tensor:
    answer = net.give(net.a(x))
    return net.b(answer.first) + net.b(answer.rest["list"][1])


def gives(x: Tensor) -> Answer:
    return Answer(x * 2, {"list": [None, x + 1], "text": "a", "pair": Pair(x - 1, None), "number": 3})


def kinds(net: Any, x: Tensor) -> Tensor:
    one, _ = net.pair(net.a(x))
    table = net.table(one, scale=0.5)
    halves = net.chunk(table["x"])
    return net.b(torch.cat([halves[0], halves[0]], 1))


def branches(net: Any, x: Tensor) -> Tensor:
    x = net.stem(x)
    return net.last(net.one(x) + net.two(x) + x)


def dense_block() -> nn.Module:
    return Net(dense, a=linear(8), b=linear(8), norm=nn.BatchNorm1d(8))


def two_branch() -> nn.Module:
    one = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    two = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    return Net(branches, stem=nn.Conv2d(3, 4, 3), one=one, two=two, last=nn.Conv2d(4, 2, 1))


def frozen() -> nn.Module:
    model = nn.Sequential(linear(), nn.Tanh(), linear())
    model[0].requires_grad_(False)
    return Net(lambda net, x: net.all(x), all=model)


def tied() -> nn.Module:
    net = Net(lambda net, x: net.b(torch.tanh(net.a(x))), a=linear(), b=linear())
    net.b.weight = net.a.weight
    return net


def shared() -> nn.Module:
    part = linear()
    return Net(lambda net, x: net.b(torch.relu(net.a(net.a(x)))), a=part, b=part)


def segments(checkpointed: bool, reentrant: bool = False, inner: bool = False) -> nn.Module:
    def part(net: Any, x: Tensor) -> Tensor:
        middle = checkpoint(net.b, x, use_reentrant=reentrant) if checkpointed and inner else net.b(x)
        return torch.tanh(net.c(middle))

    def compute(net: Any, x: Tensor) -> Tensor:
        x = net.a(x)
        for _ in range(2):
            x = checkpoint(part, net, x, use_reentrant=reentrant) if checkpointed else part(net, x)
        return x

    return Net(compute, a=linear(), b=nn.Sequential(linear(), nn.Tanh()), c=linear())


def plain() -> nn.Module:
    return Net(lambda net, x: net.b(net.d(torch.relu(net.a(x)))), a=linear(), d=nn.Dropout(0.5), b=linear())


def wrapped(part: nn.Module) -> nn.Module:
    return Net(lambda net, x: net.b(net.a(x)), a=part, b=linear())


def accumulated(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    return [loss for batch in batches for loss in train(model, [batch, batch])]


def autocast(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return train(model, batches)


def scaled(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model(**batch))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def penalized(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    losses = []
    for batch in batches:
        x = batch["x"].clone().requires_grad_()
        loss = loss_of(model(x=x))
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + gradient.square().sum()).backward()
        losses.append(loss.item())
    return losses


def lbfgs(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure_of(batch: Batch) -> Any:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model(**batch))
            loss.backward()
            return loss

        return closure

    return [optimizer.step(closure_of(batch)).item() for batch in batches]


def two_optimizers(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD(parameters[:2], lr=0.1), torch.optim.Adam(parameters[2:])]
    losses = []
    for batch in batches:
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss = loss_of(model(**batch))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def encoder() -> nn.Module:
    return Net(lambda net, x: net.all(x), all=nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2))


def case(name: str, about: str, build: Any, batch: Any = flat, loop: Any = train, reference: Any = None) -> Case:
    return Case(name, about, build, batch, loop, reference)


CASES = [
    case("in-place, 2-D", "an in-place ReLU and `+=` after a layer", lambda: Net(in_place, a=linear(), b=linear())),
    case("in-place, 3-D", "the same where the layer returns a view", lambda: Net(in_place, a=linear(), b=linear()), deep),
    case("dense block", "the output of a norm rewritten by an in-place ReLU", dense_block),
    case("shared module", "one module under two names, called three times", shared),
    case("recurrent cell", "one cell called once a time step", lambda: Net(recurrent, cell=nn.GRUCell(4, 4), last=linear()), deep),
    case("LSTM", "nested tuple output", lambda: Net(lambda net, x: net.last(net.rnn(x)[0]), rnn=nn.LSTM(4, 4), last=linear()), deep),
    case("LSTM, packed", "PackedSequence in and out", lambda: Net(packed, rnn=nn.LSTM(4, 4), last=linear()), deep),
    case("TransformerEncoder", "functional attention inside", encoder, deep),
    case("nested output", "dataclass, dict, list, namedtuple, None", lambda: Net(nested, a=linear(), give=Through(gives), b=linear())),
    case(
        "kinds of output",
        "namedtuple with None, dict, unused sibling of `chunk`, keywords",
        lambda: Net(
            kinds,
            a=linear(),
            pair=Through(lambda x: Pair(x + 1, None)),
            table=Through(lambda x: {"x": x}),
            chunk=Through(lambda x: x.chunk(2, 1)),
            b=linear(),
        ),
    ),
    case("custom function", "a gradient that is not the derivative", lambda: wrapped(Through(Doubling.apply))),
    case("tied weights", "one parameter under two names", tied),
    case("weight_norm", "a parametrized weight", lambda: wrapped(parametrizations.weight_norm(linear()))),
    case("spectral_norm", "a weight whose reading changes a buffer", lambda: wrapped(parametrizations.spectral_norm(linear()))),
    case("frozen backbone", "no gradient to the first layer", frozen),
    case("dropout", "random numbers in the forward", plain),
    case("two-branch batch norm", "gradients that a full backward hook changes", two_branch, images),
    case("checkpoint", "recomputed in the backward", lambda: segments(True), flat, train, lambda: segments(False)),
    case("checkpoint, reentrant", "gradients in the recompute", lambda: segments(True, True), flat, train, lambda: segments(False)),
    case("checkpoint, nested", "a recompute in a recompute", lambda: segments(True, False, True), flat, train, lambda: segments(False)),
    case("accumulation", "two backwards for each batch", plain, flat, accumulated),
    case("autocast", "bfloat16 inside", plain, flat, autocast),
    case("GradScaler", "scaled gradients", plain, flat, scaled),
    case("gradient penalty", "a backward through a backward", lambda: wrapped(nn.Sequential(linear(), nn.Tanh())), flat, penalized),
    case("LBFGS", "forwards and backwards inside `step`", lambda: wrapped(nn.Tanh()), flat, lbfgs),
    case("two optimizers", "each has half of the parameters", plain, flat, two_optimizers),
]
