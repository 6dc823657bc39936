"""Pickles, deep copies and scripted modules of a probed model, which carry nothing of ours."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.hooks.capture.model_copies import without_ours

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "probes":
            raise ModuleNotFoundError("probes is not installed here")
sys.meta_path.insert(0, Blocked())
import torch
model = torch.load(sys.argv[1], weights_only=False)
print(model(torch.ones(2, 4)).tolist())
"""
VALUES = ["input", "output", "grad_output", "grad_input"]
SPEC: dict[str, Any] = {
    "version": 1,
    "probes": {
        "values": {"modules": ["0"], "values": VALUES},
        "root": {"modules": [""], "values": ["input", "output"]},
        "grads": {"hook": "tensor", "tensors": ["0.weight"], "values": ["grad"]},
    },
}


class WithState(nn.Sequential):
    """A model with `__getstate__` as people write it."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


class OwnDeepcopy(nn.Sequential):
    """A model that copies itself past `__reduce_ex__`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> OwnDeepcopy:
        made = OwnDeepcopy.__new__(OwnDeepcopy)
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made


def model_of(kind: type[nn.Sequential]) -> nn.Sequential:
    torch.manual_seed(0)
    return kind(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def saved(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def pickled(model: nn.Module) -> Any:
    return pickle.loads(pickle.dumps(model))


def hooks(model: nn.Module) -> list[object]:
    tables = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
    )
    return [entry for module in model.modules() for table in tables for entry in vars(module)[table].values()]


def noted(module: nn.Module, args: Any, output: Any) -> None:
    """A hook of the program's own."""


def probed(model: nn.Module, directory: Path, act: Callable[[nn.Module], Any]) -> Any:
    """Train for two steps and do something with the model before, between and after its calls; what came of it in between."""
    found = None
    with probes.attach(model, SPEC, out=directory) as run, run.epoch(0):
        act(model)
        for index, x in enumerate(run.steps([torch.ones(2, 4), torch.zeros(2, 4)])):
            model(x).sum().backward()
            found = act(model) if not index else found
        act(model)
    return found


@pytest.mark.parametrize("kind", [nn.Sequential, WithState])
@pytest.mark.parametrize("make", [copy.deepcopy, pickled, saved])
def test_a_copy_made_during_a_run_has_the_hooks_of_the_program_and_none_of_probes(
    tmp_path: Path, kind: type[nn.Sequential], make: Callable[[nn.Module], Any]
) -> None:
    model = model_of(kind)
    handle = model[0].register_forward_hook(noted)
    made = probed(model, tmp_path / "run", make)
    assert hooks(made) == [noted]
    assert type(made[0]._forward_hooks) is OrderedDict
    assert len(probes.open(tmp_path / "run")["values", "0", "output"]) == 2
    handle.remove()
    assert hooks(model) == []


def test_an_averaged_model_that_is_copied_and_called_during_a_run_is_not_captured(tmp_path: Path) -> None:
    model = model_of(nn.Sequential)

    def average(model: nn.Module) -> Any:
        ema = torch.optim.swa_utils.AveragedModel(model)
        with torch.no_grad():
            ema(torch.ones(2, 4))
        return ema

    ema = probed(model, tmp_path / "run", average)
    assert hooks(ema) == []
    assert [clock["step"] for clock in probes.open(tmp_path / "run")["values", "0", "output"].clocks] == [0, 1]


def test_a_model_that_copies_itself_gets_hooks_that_do_nothing_and_pickle_to_the_standard_library(tmp_path: Path) -> None:
    made = probed(model_of(OwnDeepcopy), tmp_path / "run", copy.deepcopy)
    assert made(torch.ones(2, 4)).shape == (2, 1)
    assert b"probes" not in pickle.dumps([vars(module)["_forward_hooks"] for module in made.modules()])
    assert len(probes.open(tmp_path / "run")["values", "0", "output"]) == 2


def test_a_shallow_copy_shares_the_tables_as_it_does_without_probes(tmp_path: Path) -> None:
    model = model_of(nn.Sequential)
    made = probed(model, tmp_path / "run", copy.copy)
    assert made._forward_hooks is model._forward_hooks
    assert hooks(made) == []


@pytest.mark.parametrize("kind", [nn.Sequential])
def test_a_model_saved_during_a_run_loads_where_probes_is_not_installed(tmp_path: Path, kind: type[nn.Sequential]) -> None:
    model = model_of(kind)
    path = tmp_path / "model.pt"
    probed(model, tmp_path / "run", lambda model: torch.save(model, path))
    assert b"probes" not in path.read_bytes()
    done = subprocess.run([sys.executable, "-P", "-c", BLOCKED, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(model(torch.ones(2, 4)).tolist())), done.stderr


def test_a_graph_module_pickles_without_objects_of_probes(tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(model_of(nn.Sequential))
    data = probed(graph, tmp_path / "run", pickle.dumps)
    assert b"probes" not in data
    assert hooks(pickle.loads(data)) == []


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_module_is_scripted_without_our_hooks_which_keep_their_places(tmp_path: Path) -> None:
    model = model_of(nn.Sequential)
    scripted = probed(model, tmp_path / "run", torch.jit.script)
    assert torch.equal(scripted(torch.ones(2, 4)), model(torch.ones(2, 4)))
    assert len(probes.open(tmp_path / "run")["values", "0", "output"]) == 2


def test_the_methods_are_restored_after_the_run_unless_the_program_replaced_them(tmp_path: Path) -> None:
    before = nn.Module.__reduce_ex__, torch.jit._recursive.create_script_module
    probed(model_of(nn.Sequential), tmp_path / "a", hooks)
    assert (nn.Module.__reduce_ex__, torch.jit._recursive.create_script_module) == before
    assert "__reduce_ex__" not in vars(nn.Module)

    def own(module: nn.Module, protocol: Any) -> Any:
        return object.__reduce_ex__(module, protocol)

    def replace(model: nn.Module) -> None:
        nn.Module.__reduce_ex__ = own  # type: ignore[assignment, method-assign]  # as a program would

    try:
        probed(model_of(nn.Sequential), tmp_path / "b", replace)
        assert vars(nn.Module)["__reduce_ex__"] is own
    finally:
        del nn.Module.__reduce_ex__


def test_two_runs_at_once_are_suspended_until_both_end(tmp_path: Path) -> None:
    first, second = model_of(nn.Sequential), model_of(nn.Sequential)
    with probes.attach(first, SPEC, out=tmp_path / "a") as run, run.epoch(0):
        made = probed(second, tmp_path / "b", lambda _: copy.deepcopy(first))
        for x in run.steps([torch.ones(2, 4)]):
            first(x).sum().backward()
        after = copy.deepcopy(first)
    assert hooks(made) == hooks(after) == []


def test_a_state_without_hooks_of_probes_is_passed_on_unchanged() -> None:
    state = vars(model_of(nn.Sequential))
    assert without_ours(state) is state


def test_parameters_that_are_swapped_on_conversion_are_converted_during_and_after_a_run(tmp_path: Path) -> None:
    model = model_of(nn.Sequential)
    torch.__future__.set_swap_module_params_on_conversion(True)
    spec = {
        **SPEC,
        "probes": {**SPEC["probes"], "grads": {"hook": "tensor", "tensors": ["**.weight"], "values": ["grad"], "stage": "final"}},
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    try:
        with probes.attach(model, spec, out=tmp_path / "run") as run:
            for epoch in run.epochs(2):
                for x in run.steps([torch.ones(2, 4)]):
                    model.to(torch.float64 if epoch else torch.float32)
                    model(x.to(model[0].weight.dtype)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        model.to(torch.float32)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    run = probes.open(tmp_path / "run")
    for place in (("values", "0", "output"), ("grads", "0.weight", "grad")):
        assert set(run.sel(epoch=0)[place].dtypes) == {"float32"}
        assert set(run.sel(epoch=1)[place].dtypes) == {"float64"}
