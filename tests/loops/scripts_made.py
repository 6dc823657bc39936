"""Whole scripts that are made up, with their truth in the words of `truth.py`: choices of loop styles, put together.

The truth is computed from the structure that was chosen, by the rules of `What is a step`, while the text is written.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from tests.loops.programs import Draw

PRELUDE = """
import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, x, fails=False):
        hidden = self.fc(x)
        if fails:
            raise ValueError("bad batch")
        return self.head(hidden)


class Endless(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.inner = None

    def __iter__(self):
        if self.inner is None:
            self.inner = self.again()
        for _ in range(len(self)):
            yield next(self.inner)

    def again(self):
        while True:
            yield from DataLoader.__iter__(self)


def loader(batches, kind=DataLoader):
    return kind(TensorDataset(torch.randn(2 * batches, 2)), batch_size=2)


net = Net()
teacher = copy.deepcopy(net)
"""


@dataclass(frozen=True)
class Script:
    """What was chosen.

    Attributes:
        epochs: passes of the training.
        batches: of a pass.
        feed: how batches come: `loader`, `turn`, `zip`, `endless`, `made`, `ahead` or `none`.
        accumulate: batches of an update; `rest`: whether what remains at the end of a pass is stepped too.
        updates: optimizer steps on each batch.
        calls: training calls in each batch; `apart`: the layers are called by themselves.
        before: what else happens in a batch before the training call: `teacher`, `labels`, `attack`.
        optimizers: `one`, `two` or `scaler`.
        validation: empty, `before`, `within`, `after`, `training_loader` or `call`.
        views: calls in each batch of the validation.
        first: a call before all else: empty, `eval` or `no_grad`.
        ending: empty, `break`, `bad_batch`, `interrupt` or `exit`.
        step: the spec's `clock.step`.
    """

    epochs: int = 1
    batches: int = 2
    feed: str = "loader"
    accumulate: int = 1
    rest: bool = True
    updates: int = 1
    calls: int = 1
    apart: bool = False
    before: str = ""
    optimizers: str = "one"
    validation: str = ""
    views: int = 1
    first: str = ""
    ending: str = ""
    step: str = "optimizer"


def script(draw: Draw) -> Script:
    """Any combination that makes sense."""
    feed = draw.choice(("loader", "turn", "zip", "endless", "made", "ahead", "none"))
    accumulate = draw.choice((1, 2))
    updates = draw.choice((1, 2)) if accumulate == 1 else 1
    whole = feed in ("loader", "made", "endless")
    epochs = draw.number(1, 3)
    steps = epochs > 1 or accumulate == 1  # else an ending may come before any optimizer step, which tells the model from its teacher
    return Script(
        epochs=epochs,
        batches=draw.number(2, 4),
        feed=feed,
        accumulate=accumulate,
        rest=draw.choice((True, False)) if whole else True,
        updates=updates,
        calls=draw.choice((1, 2)),
        apart=draw.choice((False, True)),
        before=draw.choice(("", *(("teacher",) if steps else ()), "labels", "attack")),
        optimizers=draw.choice(("one", "two", "scaler")),
        validation=draw.choice(("", "after", "within", "before", "training_loader", "call"))
        if feed != "none"
        else draw.choice(("", "call")),
        views=draw.choice((1, 2)),
        first=draw.choice(("", "eval", "no_grad")),
        ending=draw.choice(("", "break", "interrupt", "exit", *(("bad_batch",) if accumulate == 1 and updates == 1 else ())))
        if feed == "loader"
        else "",
        step=draw.choice(("optimizer", "update", "batch")) if feed == "loader" and accumulate == 1 else "optimizer",
    )


@dataclass
class Clock:
    """Steps and epochs by hand: training as lists of microsteps, and other steps likewise."""

    rule: str
    loader: bool
    train: list[list[int]] = field(default_factory=lambda: [[]])
    eval: list[list[int]] = field(default_factory=lambda: [[]])
    labelled: bool = False
    open: bool = False
    updated: bool = False
    raised: bool = False

    def begin_epoch(self) -> None:
        """A pass begins that is another epoch."""
        self.open = self.updated = False
        self.train.append([])
        self.eval.append([])

    def pull(self) -> None:
        """A batch comes."""
        if self.raised and not self.updated:
            self.train[-1][-1] *= -1
        if self.updated or self.raised or self.rule == "batch":
            self.open = False
        self.updated = self.raised = False

    def call(self) -> None:
        """A training call."""
        if self.open and self.updated and (self.rule == "update" or not self.loader):
            self.open = self.updated = False
        if not self.open:
            self.train[-1].append(0)
            self.open = True
        self.train[-1][-1] += 1

    def other(self, calls: int = 1) -> None:
        """A step of another phase."""
        self.eval[-1].append(calls)


class Written:
    """Text and truth of a script, made together."""

    def __init__(self, chosen: Script) -> None:
        self.chosen = chosen
        self.clock = Clock(chosen.step, chosen.feed != "none")
        self.incomplete: set[int] = set()
        self.code = 0

    @property
    def parts(self) -> int:
        """Outermost calls that one training call of the text makes."""
        return 2 if self.chosen.apart else 1

    @property
    def _teacher_first(self) -> bool:
        return self.chosen.before == "teacher" and not self.chosen.first and self.chosen.validation != "before"

    @property
    def _labels_of_a_new_loader(self) -> bool:
        """Whether the first labels of an epoch come before anything tells that its loader, made for this epoch, is one for training."""
        return self.chosen.feed == "made" and self.chosen.before == "labels"

    @property
    def text(self) -> str:
        """The script."""
        chosen = self.chosen
        lines = [PRELUDE.strip(), *_setup(chosen)]
        if chosen.ending == "interrupt":
            lines += ["try:", *_indent(_epochs(chosen)), "except KeyboardInterrupt:", "    print('interrupted')"]
        else:
            lines += _epochs(chosen)
        return "\n".join([*lines, "print(net.fc.weight.sum().item())", *(["sys.exit(3)"] if chosen.ending == "exit" else [])]) + "\n"

    @property
    def truth(self) -> dict[str, Any]:
        """What must be captured of it."""
        self._walk()
        spec = {"clock": {"step": self.chosen.step}}
        known = {"captured": "Net[1]" if self._teacher_first else "Net", "spec": spec}
        code = 3 if self.chosen.ending == "exit" else 0
        phases = ["train", "eval"] if self.chosen.before == "attack" else ["train"]
        both = {"train": self.clock.train, "eval": self.clock.eval}
        return {**known, **both, "incomplete": sorted(self.incomplete), "code": code, "gradient_phases": phases}

    def _walk(self) -> None:
        chosen, clock = self.chosen, self.clock
        if chosen.first:
            clock.other()
        for epoch in range(chosen.epochs):
            if chosen.validation == "before":
                self._validate()
            if epoch and chosen.feed != "none":
                if self._labels_of_a_new_loader:
                    clock.other()
                clock.begin_epoch()
                if self._labels_of_a_new_loader:
                    clock.labelled = True
            if self._pass(epoch == chosen.epochs - 1):
                self.incomplete.add(epoch)
                if chosen.ending == "interrupt":
                    return
            if chosen.validation in ("after", "training_loader", "call"):
                self._validate()

    def _pass(self, last: bool) -> bool:
        """One pass; whether it was left."""
        chosen, clock = self.chosen, self.clock
        count = chosen.batches * (2 if chosen.feed == "turn" else 1)
        for batch in range(count):
            if chosen.feed != "none":
                clock.pull()
            if last and chosen.ending == "interrupt" and batch == 1:
                return True
            index = batch % chosen.batches if chosen.feed == "turn" else batch
            self._batch(batch, index, last)
            if chosen.validation == "within" and index % 2 == 1:
                self._validate()
            if last and chosen.ending == "break" and batch == 0:
                return True
        if chosen.feed != "none":
            clock.pull()
        return False

    def _batch(self, number: int, index: int, last: bool) -> None:
        chosen, clock = self.chosen, self.clock
        for _ in range(0 if clock.labelled else {"labels": 1, "attack": 2}.get(chosen.before, 0)):
            clock.other()
        clock.labelled = False
        if chosen.ending == "bad_batch" and last and number == 0:
            clock.call()
            clock.raised = True
            return
        for _ in range(chosen.updates):
            for _ in range(chosen.calls * self.parts * (2 if chosen.feed == "zip" else 1)):
                clock.call()
            if (index + 1) % chosen.accumulate == 0 or (chosen.rest and index + 1 == chosen.batches):
                clock.updated = True

    def _validate(self) -> None:
        chosen, clock = self.chosen, self.clock
        if chosen.validation == "call":
            clock.other()
        for _ in range(0 if chosen.validation == "call" else chosen.batches if chosen.validation == "training_loader" else 2):
            clock.other(chosen.views)


def _setup(chosen: Script) -> list[str]:
    lines = [f"batches, epochs, accumulate = {chosen.batches}, {chosen.epochs}, {chosen.accumulate}", "valid = loader(2)"]
    kind = ", Endless" if chosen.feed == "endless" else ""
    lines += [f"train = loader(batches{kind})", *(["second = loader(batches)"] if chosen.feed in ("turn", "zip") else [])]
    if chosen.optimizers == "two":
        lines += ["optimizers = [torch.optim.Adam(net.fc.parameters()), torch.optim.SGD(net.head.parameters(), lr=0.1)]"]
    else:
        lines += ["optimizers = [torch.optim.SGD(net.parameters(), lr=0.1)]"]
    if chosen.optimizers == "scaler":
        lines += ["scaler = torch.amp.GradScaler('cpu', init_scale=4.0)"]
    if chosen.first:
        mode = ["net.eval()"] if chosen.first == "eval" else []
        lines += [*mode, "with torch.no_grad():", "    print(net(torch.ones(1, 2)).sum().item())", "net.train()"]
    return lines


def _epochs(chosen: Script) -> list[str]:
    body = ["net.train()", *_passes(chosen)]
    if chosen.validation == "before":
        body = [*_validation(chosen), *body]
    if chosen.validation in ("after", "training_loader", "call"):
        body += _validation(chosen)
    return ["for epoch in range(epochs):", *_indent(body)]


def _passes(chosen: Script) -> list[str]:
    body = _body(chosen)
    match chosen.feed:
        case "turn":
            return ["for each in (train, second):", "    for index, (x,) in enumerate(each):", *_indent(body, 2)]
        case "zip":
            return ["for index, ((x,), (u,)) in enumerate(zip(train, second)):", *_indent(body)]
        case "made":
            return ["train = loader(batches)", "for index, (x,) in enumerate(train):", *_indent(body)]
        case "none":
            return ["for index in range(batches):", "    x = torch.randn(2, 2)", *_indent(body)]
        case "ahead":
            pull = ["index, ahead, following = 0, iter(train), None", "following = next(ahead, None)", "while following is not None:"]
            return [*pull, "    (x,) = following", "    following = next(ahead, None)", *_indent(body), "    index += 1"]
    return ["for index, (x,) in enumerate(train):", *_indent(body)]


def _body(chosen: Script) -> list[str]:
    lines: list[str] = []
    if chosen.ending == "interrupt":
        lines += ["if epoch == epochs - 1 and index == 1:", "    raise KeyboardInterrupt"]
    if chosen.before == "teacher":
        lines += ["with torch.no_grad():", "    x = x + 0.1 * teacher(x)"]
    if chosen.before == "labels":
        lines += ["with torch.no_grad():", "    x = x + 0.1 * net(x)"]
    if chosen.before == "attack":
        attack = ["x = x.detach().requires_grad_()", "x = x + 0.1 * torch.autograd.grad(net(x).sum(), x)[0].sign()"]
        lines += ["net.eval()", "for _ in range(2):", *_indent(attack), "net.train()", "x = x.detach()"]
    if chosen.ending == "bad_batch":
        lines += ["try:", "    if epoch == epochs - 1 and index == 0:", "        net(x, fails=True)", "except ValueError as error:"]
        lines += ["    print(error)", "    continue"]
    lines += [f"for _ in range({chosen.updates}):", *_indent(_update(chosen))]
    if chosen.validation == "within":
        lines += ["if index % 2 == 1:", *_indent([*_validation(chosen), "net.train()"])]
    if chosen.ending == "break":
        lines += ["if epoch == epochs - 1 and index == 0:", "    break"]
    return lines


def _update(chosen: Script) -> list[str]:
    call = "net.head(net.fc({x}))" if chosen.apart else "net({x})"
    names = ["x", "u"] if chosen.feed == "zip" else ["x"]
    losses = [f"({call.format(x=x)} - {at}).square().mean()" for x in names for at in range(chosen.calls)]
    backward = "scaler.scale(loss).backward()" if chosen.optimizers == "scaler" else "loss.backward()"
    step = ["scaler.step(optimizer)", "scaler.update()"] if chosen.optimizers == "scaler" else ["optimizer.step()"]
    due = "(index + 1) % accumulate == 0" + (" or index + 1 == batches" if chosen.rest else "")
    each = ["for optimizer in optimizers:", *_indent([*step, "optimizer.zero_grad()"])]
    return [f"loss = {' + '.join(losses)}", backward, f"if {due}:", *_indent(each)]


def _validation(chosen: Script) -> list[str]:
    lines = ["net.eval()", "with torch.no_grad():"]
    if chosen.validation == "call":
        return [*lines, "    print(net(torch.ones(1, 2)).sum().item())"]
    name = "train" if chosen.validation == "training_loader" else "valid"
    return [*lines, f"    for (v,) in {name}:", *(["        print(net(v).sum().item())"] * chosen.views)]


def _indent(lines: list[str], times: int = 1) -> list[str]:
    return textwrap.indent("\n".join(lines), "    " * times).splitlines()
