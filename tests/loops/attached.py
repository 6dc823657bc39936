"""Runs a generated program around `probes.attach` in this process, and says what is wrong with what was captured."""

from __future__ import annotations

import copy
import textwrap
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

import probes
from probes.errors import RunError
from tests.loops.compare import captured_rows, difference
from tests.loops.observe import digest
from tests.loops.oracle import Oracle
from tests.loops.programs import Aside, Call, Items, Learn, Named, OneStep, Program, Statement

Place = tuple[str, int, int, int, int]
"""Phase, epoch, step, global step, microstep."""

PHASES = ["train", "eval", "val"]
SPEC: dict[str, Any] = {
    "version": 1,
    "name": "generated",
    "defaults": {"when": {"phases": PHASES}, "expect": {"fires": "some"}},
    "probes": {
        "values": {"modules": ["fc"], "values": ["input", "output"]},
        "sparse": {"modules": ["fc"], "hook": "forward", "when": {"steps": {"every": 2}}},
        "first": {"modules": ["fc"], "hook": "forward", "when": {"microsteps": {"at": [0]}}},
        "gradient": {"modules": ["fc"], "hook": "backward"},
    },
}


class Bad(Exception):
    """Raised by programs on purpose."""


class Net(nn.Module):
    """Two layers; a call that is to fail raises between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, x: Tensor, fails: bool = False) -> Tensor:
        hidden = self.fc(x)
        if fails:
            raise Bad
        result: Tensor = self.head(hidden)
        return result


class Seen:
    """Hooks by hand on the probed layer: digests of each call in order."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.calls: list[dict[str, Any]] = []
        layer.register_forward_hook(self.hook)

    def hook(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if (
            module is not self.layer
            or torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._get_tracing_state() is not None
        ):
            return
        call: dict[str, Any] = {"input": digest(inputs[0]), "output": digest(output), "gradients": []}
        self.calls.append(call)
        if output.requires_grad:
            output.register_hook(lambda gradient: call["gradients"].append(digest(gradient)))


class Actions:
    """What programs call by name."""

    def __init__(self, model: Net) -> None:
        self.model = model
        self.other = Net()
        self.generator = torch.Generator().manual_seed(1)
        self.pending: list[Tensor] = []
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.foreign = torch.optim.SGD(self.other.parameters(), lr=0.01)
        self.bound = model.__call__

    @property
    def names(self) -> dict[str, Any]:
        """The names that a program may use."""
        return {"call": self.call, "learn": self.learn, "aside": self.aside, "pending": self.pending, "Bad": Bad}

    def x(self) -> Tensor:
        return torch.randn(2, 2, generator=self.generator)

    def call(self, mode: str, part: str = "whole", way: str = "call", fails: bool = False) -> None:
        """Call the model; what it gives waits for `learn` where it has a gradient."""
        self.model.train(mode in ("train", "no_grad"))
        target = self.model if part == "whole" else self.model.get_submodule(part)
        arguments = (self.x(), fails) if part == "whole" else (self.x(),)

        def go() -> None:
            with torch.set_grad_enabled(mode in ("train", "eval_grad")):
                try:
                    output = self._called(target, way, arguments)
                except Bad:
                    return
            if output.requires_grad:
                self.pending.append(output)

        if way == "thread":
            thread = threading.Thread(target=go)
            thread.start()
            thread.join()
        else:
            go()
        self.model.train()

    def _called(self, target: nn.Module, way: str, arguments: tuple[Any, ...]) -> Tensor:
        if way == "functional":
            return functional_call(target, dict(target.named_parameters()), arguments)
        result: Tensor = self.bound(*arguments) if way == "bound" else target(*arguments)
        return result

    def learn(self, step: bool = True, twice: bool = False) -> None:
        """Backward of all that waits, and an update."""
        if self.pending:
            loss = torch.stack([output.square().mean() for output in self.pending]).sum()
            for last in (False, True) if twice else (True,):
                loss.backward(retain_graph=not last)
        self.pending.clear()
        if step:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def aside(self, kind: str) -> None:
        """Something that must change nothing."""
        x = torch.ones(2, 2)
        with torch.no_grad():
            if kind == "other":
                self.other(x)
            elif kind == "copy":
                copy.deepcopy(self.model)(x)
            elif kind == "vmap":
                vmap(self.model)(x)
            elif kind == "trace":
                torch.jit.trace(self.model, x, check_trace=False)
        if kind == "foreign_step":
            self.other(x).sum().backward()
            self.foreign.step()


def source(program: Program) -> str:
    """The program as text."""
    lines: list[str] = []
    many = len(program.bodies)
    if program.opening == "epochs":
        block = [f"for epoch in run.epochs({many + (program.leave == 'break')}):", "    pending.clear()"]
        for epoch, body in enumerate(program.bodies):
            block += [f"    if epoch == {epoch}:", *_indented(_lines(body), 2)]
        block += (
            [f"    if epoch == {many - 1}:", "        raise Bad" if program.leave == "raise" else "        break"] if program.leave else []
        )
        lines += _caught(block) if program.leave == "raise" else block
    elif program.opening:
        for epoch, body in enumerate(program.bodies):
            raises = program.leave == "raise" and epoch == many - 1
            block = [f"with run.epoch({epoch}):", "    pending.clear()", *_indented(_lines(body)), *(["    raise Bad"] if raises else [])]
            lines += _caught(block) if raises else block
    else:
        lines += _lines(program.bodies[0])
    return "\n".join(lines) + "\n"


def _lines(body: tuple[Statement, ...]) -> list[str]:
    return [line for each in body for line in _line(each)]


def _line(each: Statement) -> list[str]:
    match each:
        case Call():
            return [f"call({each.mode!r}, {each.part!r}, {each.way!r}, fails={each.fails})"]
        case Learn():
            return [f"learn(step={each.step}, twice={each.twice})"]
        case Aside():
            return [f"aside({each.kind!r})"]
        case Named():
            block = [f"with run.phase({each.name!r}):", *_indented(_lines(each.body))]
            return _caught([*block, "    raise Bad"]) if each.raises else block
        case OneStep():
            block = ["with run.step():", *_indented(_lines(each.body))]
            return _caught([*block, "    raise Bad"]) if each.raises else block
        case Items():
            data = f"range({each.count})" if each.sized else f"(i for i in range({each.count}))"
            block = [f"for i in run.steps({data}, accumulate={each.accumulate}):", *_indented(_lines(each.body))]
            if each.leave == "break":
                block += [f"    if i == {each.at}:", "        break"]
            if each.leave == "raise":
                return _caught([*block, f"    if i == {each.at}:", "        raise Bad"])
            return block


def _caught(block: list[str]) -> list[str]:
    return ["try:", *_indented(block), "except Bad:", "    pending.clear()"]


def _indented(lines: list[str], times: int = 1) -> list[str]:
    return textwrap.indent("\n".join(lines), "    " * times).splitlines()


def faults(program: Program, out: Path) -> list[str]:
    """Run a program; what is wrong with it."""
    oracle = Oracle().of(program)
    places = [expected.place if expected is not None and expected.step.kept else None for expected in oracle.calls]
    return differences(source(program), places, oracle.complete, out)


def differences(text: str, places: Sequence[Place | None], complete: dict[int, bool | None], out: Path) -> list[str]:
    """Run the text of a program; what is wrong with what was captured.

    Args:
        text: what is done within `with probes.attach(...) as run`.
        places: where each call of the probed layer must be, in order; None for one that must not be captured.
        complete: whether each epoch must be complete; None where either is right.
        out: the run directory.
    """
    torch.manual_seed(0)
    model = Net()
    seen = Seen(model.fc)
    wrong = []
    try:
        with probes.attach(model, SPEC, out=out) as run:
            exec(compile(text, "<program>", "exec"), {**Actions(model).names, "run": run, "model": model})
    except RunError as error:
        wrong += [str(error)] if "captured nothing" not in str(error) else []
    if len(places) != len(seen.calls):
        raise AssertionError(f"{len(places)} calls by hand, {len(seen.calls)} were seen")
    for probe in SPEC["probes"]:
        if lines := difference(_due(places, seen, probe), captured_rows(out, probe, "fc")):
            wrong.append(f"{probe}: {lines}")
    state = probes.open(out).state
    due = {epoch: "complete" if whole else "incomplete" for epoch, whole in complete.items() if whole is not None}
    if {epoch: state.get(epoch) for epoch in due} != due or {*state} != {*complete}:
        wrong.append(f"epochs are {state}, due {due}")
    if len(model.fc._forward_hooks) != 1 or model.fc._forward_pre_hooks or model._forward_pre_hooks or model._forward_hooks:
        wrong.append("hooks are left on the model")
    return wrong


def _due(places: Sequence[Place | None], seen: Seen, probe: str) -> dict[str, list[tuple[Any, ...]]]:
    """What a probe must have captured, by phase."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for place, call in zip(places, seen.calls, strict=True):
        if place is None:
            continue
        phase, epoch, step, total, microstep = place
        if {"sparse": step % 2 == 0, "first": microstep == 0}.get(probe, True):
            rows.setdefault(phase, []).extend((epoch, step, total, microstep, 0, *row) for row in _rows(call, probe))
    return {phase: sorted(found) for phase, found in rows.items() if found}


def _rows(call: dict[str, Any], probe: str) -> Iterator[tuple[Any, ...]]:
    if probe == "gradient":
        yield from ((at, "grad_output", value) for at, value in enumerate(call["gradients"]))
        return
    if probe == "values":
        yield (0, "input", call["input"])
    yield (0, "output", call["output"])
