"""What is said of specs that a model, or a run of it, does not fit: their first line names a model, and the loop of a run."""

from __future__ import annotations

import tempfile
from contextlib import chdir, redirect_stderr
from io import StringIO
from pathlib import Path

import click
import torch
from torch import nn

import probes
from probes.commands.rendering.failure import problems_text
from probes.errors import PlanError, ProbesError
from tests.pages import module

FOLDER = Path(__file__).parent / "specs" / "unfit"
REFUSED = sorted(FOLDER.glob("*.yaml"))


def said(path: Path) -> str:
    """What a person reads.

    Raises:
        AssertionError: nothing is wrong.
    """
    name, *loop = path.read_text("utf-8").splitlines()[0].removeprefix("# ").split()
    torch.manual_seed(0)
    model = getattr(module("tests/specs/unfit/models.py"), name)()
    with chdir(path.parent), redirect_stderr(StringIO()):  # the summary of a run that is meant to fail
        try:
            if loop:
                _run(model, path.name, loop[0])
            else:
                probes.resolve(path.name, model)
        except PlanError as error:
            return click.unstyle(problems_text(error.problems)) + "\n"
        except ProbesError as error:
            return f"{error}\n"
    raise AssertionError(f"{path} fits")


def _run(model: nn.Module, spec: str, loop: str) -> None:
    with tempfile.TemporaryDirectory() as folder, probes.attach(model, spec, out=Path(folder) / "run") as run, run.epoch(0):
        for index in run.steps(range(3)):
            skip = (True,) if loop == "alternate" and index == 1 else ()
            with torch.set_grad_enabled(loop != "evaluate"):
                out = model(torch.ones(2, 1, 4, 4), *skip)
            if loop != "evaluate":
                (out["logits"] if isinstance(out, dict) else out).square().mean().backward()


def said_of(text: str, folder: Path) -> str:
    """What is said of a text, on the model `net` and in a run of it; empty where it fits."""
    path = folder / "spec.yaml"
    path.write_text(f"# net run\n{text}\n", encoding="utf-8")
    try:
        return said(path)
    except AssertionError:
        return ""
