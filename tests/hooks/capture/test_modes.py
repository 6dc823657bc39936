"""A program that watches or changes all operations sees its own only: counters of FLOPs, default devices, classes of tensors."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import probes

OUTPUT = {"hook": "forward", "modules": ["*"]}
SPEC = {
    "version": 1,
    "probes": {
        "values": OUTPUT,
        "stats": {**OUTPUT, "transforms": [{"kind": "stats"}]},
        "projected": {**OUTPUT, "transforms": [{"kind": "project", "size": 2, "seed": 1}]},
        "counts": {**OUTPUT, "transforms": [{"kind": "histogram", "bins": 4, "range": [-2, 2]}]},
        "sums": {**OUTPUT, "transforms": [{"kind": "accumulate"}]},
        "gradients": {"hook": "backward", "modules": ["*"], "values": ["grad_output"], "transforms": [{"kind": "norm"}]},
        "weights": {"hook": "tensor", "tensors": ["**"], "values": ["grad"], "transforms": [{"kind": "stats"}]},
    },
}


class Dispatched(TorchDispatchMode):
    """Counts what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


class Called(TorchFunctionMode):
    """Counts what is called in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[getattr(function, "__name__", "")] += 1
        return function(*args, **(kwargs or {}))


class Own(Tensor):
    """Counts what is done with its tensors."""

    seen: ClassVar[Counter[str]] = Counter()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Own.seen[getattr(function, "__name__", "")] += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def trained(run: Any, mode: AbstractContextManager[Any], kind: type[Tensor] = Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    data = [torch.randn(2, 4).as_subclass(kind) if kind is not Tensor else torch.randn(2, 4) for _ in range(3)]
    with run(model) as entered, mode:
        for x in entered.steps(data) if entered is not None else data:
            model(x).square().mean().backward()
            for parameter in model.parameters():
                parameter.grad = None
    return model


def plain(_: nn.Module) -> Any:
    return nullcontext()


def attached(out: Path) -> Any:
    return lambda model: probes.attach(model, SPEC, out=out)


@pytest.mark.parametrize("make", [Dispatched, Called])
def test_a_mode_of_the_program_sees_the_same_with_probes_and_without(make: Any, tmp_path: Path) -> None:
    alone, beside = make(), make()
    trained(plain, alone)
    trained(attached(tmp_path / "run"), beside)
    assert beside.seen == alone.seen
    assert len(probes.open(tmp_path / "run")["projected", "0"].numpy()) == 3


@pytest.mark.parametrize("make", [Dispatched, Called])
def test_a_mode_that_is_on_when_the_probes_are_attached_sees_nothing_of_it(make: Any, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    with make() as mode:
        run = probes.attach(model, {"version": 1, "probes": {"values": {**OUTPUT, "modules": [""]}}}, out=tmp_path / "run")
        assert not mode.seen
        with run:
            model(torch.ones(2, 4))
    assert mode.seen.keys() <= {"ones", "linear", "aten.ones.default", "aten.t.default", "aten.addmm.default"}


def test_flops_are_those_of_the_program(tmp_path: Path) -> None:
    alone, beside = FlopCounterMode(display=False), FlopCounterMode(display=False)
    trained(plain, alone)
    trained(attached(tmp_path / "run"), beside)
    assert beside.get_total_flops() == alone.get_total_flops() > 0


def test_a_class_of_tensors_of_the_program_sees_the_same_with_probes_and_without(tmp_path: Path) -> None:
    Own.seen.clear()
    trained(plain, nullcontext(), Own)
    alone = Own.seen.copy()
    Own.seen.clear()
    trained(attached(tmp_path / "run"), nullcontext(), Own)
    assert Own.seen == alone


@pytest.mark.parametrize("mode", [lambda: torch.device("meta"), Dispatched, Called])
def test_stored_values_do_not_depend_on_modes(mode: Any, tmp_path: Path) -> None:
    trained(attached(tmp_path / "alone"), nullcontext())
    trained(attached(tmp_path / "beside"), mode())
    alone, beside = probes.open(tmp_path / "alone"), probes.open(tmp_path / "beside")
    assert len(alone.series) == len(beside.series)
    for one, other in zip(alone.series, beside.series, strict=True):
        assert one.key == other.key
        assert np.array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_stored_values_do_not_depend_on_the_default_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    class Default:
        def __enter__(self) -> None:
            torch.set_default_dtype(dtype)

        def __exit__(self, *_: object) -> None:
            torch.set_default_dtype(torch.float32)

    trained(attached(tmp_path / "alone"), nullcontext())
    trained(attached(tmp_path / "beside"), Default())  # type: ignore[arg-type]  # a context all the same
    alone, beside = probes.open(tmp_path / "alone"), probes.open(tmp_path / "beside")
    for one, other in zip(alone.series, beside.series, strict=True):
        assert (one.key, one.numpy().dtype) == (other.key, other.numpy().dtype)
        assert np.array_equal(one.numpy(), other.numpy())
