"""Which files and functions of `probes` run for one capture, and which of them the tensor passes on its way to the journal.

Usage: python -m benchmarks.traversed [--functions]

`--functions` also lists all functions, each where it is first called.

One forward probe on one module, two training steps: from `probes.attach` to the sealed file, then `probes.open` and `probes show`.
Sealing runs in this process here, so that it is counted too. Named functions count; comprehensions and lambdas do not. Other specs,
models and options take other ways.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from inspect import CO_NEWLOCALS
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import probes
from probes.cli import cli
from probes.run_directory.seal import seal
from probes.run_directory.sealer_process import SealerProcess
from probes.runner.run import Run

PACKAGE = Path(probes.__file__).parent
SPEC = {"version": 1, "name": "one", "probes": {"acts": {"hook": "forward", "modules": ["0"]}}}


def _submit(sealer: SealerProcess, journal: Path, options: Mapping[str, Any] | None = None) -> None:
    sealer._finished.append(seal(journal, sealer.directory, options))


@contextmanager
def functions_that_run() -> Iterator[dict[CodeType, None]]:
    """The functions of the package that run in the block, in any thread, by their first calls; bodies of modules and classes are none."""
    ran: dict[CodeType, None] = {}
    in_package: dict[CodeType, bool] = {}

    def called(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code not in in_package:
            function = bool(code.co_flags & CO_NEWLOCALS) and not code.co_name.startswith("<")
            in_package[code] = function and code.co_filename.startswith(str(PACKAGE))
            if in_package[code]:
                ran[code] = None

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield ran
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it


class Passage:
    """The functions that see one tensor, or the address of its memory, while a module is called.

    Attributes:
        functions: in the order of their first calls, each with `tensor` or `address`.
    """

    def __init__(self) -> None:
        self.functions: dict[CodeType, str] = {}
        self._address = 0

    def called(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take note of a call of the package that has the tensor, or its address, among its arguments."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(PACKAGE)):
            return
        count = code.co_argcount + code.co_kwonlyargcount
        given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
        tensors = [value.data_ptr() for value in given if type(value) is Tensor]
        if tensors and not self._address:
            self._address = tensors[0]
        if self._address and self._address in tensors:
            self.functions.setdefault(code, "tensor")
        elif self._address and any(type(value) is int and value == self._address for value in given):
            self.functions.setdefault(code, "address")

    def of(self, model: nn.Module, value: Tensor) -> Tensor:
        """Call the model and watch its first output on the way."""
        self._address = 0
        first = model[0] if isinstance(model, nn.Sequential) else model
        with patch.object(type(first), "forward", _watched(self, type(first).forward)):
            try:
                found: Tensor = model(value)
            finally:
                sys.setprofile(None)
        return found


def _watched(passage: Passage, forward: Any) -> Any:
    """A forward after whose return every call is looked at, beginning with the hooks on its module."""

    def run(module: nn.Module, value: Tensor) -> Tensor:
        found: Tensor = forward(module, value)
        passage._address = found.data_ptr()
        sys.setprofile(passage.called)
        return found

    return run


def train(out: Path, call: Callable[[nn.Module, Tensor], Tensor], counted: Callable[[str], Any]) -> None:
    """Two steps of training with one probe; `counted` gets the name of each part and returns its context."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ExitStack() as stack:
        with counted("attach"):
            run = probes.attach(model, SPEC, out=out)
        with counted("first step"):
            stack.enter_context(run)
            stack.enter_context(run.epoch(0))
            _step(model, optimizer, call, run)
        with counted("second step"):
            _step(model, optimizer, call, run)
        with counted("end and seal"):
            stack.close()


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, call: Callable[[nn.Module, Tensor], Tensor], run: Run) -> None:
    with run.step():
        optimizer.zero_grad()
        call(model, torch.randn(2, 4)).square().mean().backward()
        optimizer.step()


def read(out: Path) -> None:
    """Open the run and show its series."""
    assert probes.open(out)["acts", "0"].numpy().shape == (2, 2, 3)
    with redirect_stdout(StringIO()):
        cli(["show", str(out), "acts/0"], standalone_mode=False)


def described(functions: Collection[CodeType]) -> str:
    """Counts of files, functions and lines of those files."""
    files = {code.co_filename for code in functions}
    lines = sum(len(Path(name).read_text(encoding="utf-8").splitlines()) for name in files)
    return f"{len(files)} files ({lines} lines), {len(functions)} functions"


def place(function: CodeType) -> str:
    """The file of a function in the package, and its name."""
    return f"{Path(function.co_filename).relative_to(PACKAGE)}:{function.co_qualname}"


def main() -> None:
    """Print the counts and the ways."""
    parts: dict[str, dict[CodeType, None]] = {}
    passages: list[Passage] = []

    @contextmanager
    def counted(name: str) -> Iterator[None]:
        with functions_that_run() as parts[name]:
            yield

    def passed(model: nn.Module, value: Tensor) -> Tensor:
        passages.append(Passage())
        return passages[-1].of(model, value)

    with tempfile.TemporaryDirectory() as name, patch.object(SealerProcess, "submit", _submit):
        out = Path(name) / "run"
        train(out, lambda model, value: model(value), counted)
        with counted("open and show"):
            read(out)
        train(Path(name) / "again", passed, lambda _: ExitStack())
    every = sorted(PACKAGE.rglob("*.py"))
    total = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in every)
    print(f"package: {len(every)} files ({total} lines)")
    for part, functions in parts.items():
        print(f"{part}: {described(functions)}")
    print(f"attach to seal: {described(set().union(*(parts[part] for part in parts if part != 'open and show')))}")
    print(f"all: {described(set().union(*parts.values()))}")
    for index, passage in enumerate(passages):
        print(f"the tensor of step {index}: {described(set(passage.functions))}")
        for code, form in passage.functions.items():
            print(f"  {form:8} {place(code)}")
    if "--functions" in sys.argv[1:]:
        for part, functions in parts.items():
            print(f"functions of {part}:")
            for code in functions:
                print(f"  {place(code)}")


if __name__ == "__main__":
    main()
