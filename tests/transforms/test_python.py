from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import PlanError, SpecError, UsageError
from probes.provenance.own_code import with_functions
from probes.signature import Signature, SignatureError
from tests.transforms.made import made

CODE = """
import torch

def spectral(value):
    return torch.linalg.matrix_norm(value, ord=2)

def count(value):
    value.zero_()
    torch.rand(3)
    return value.numel()

def broken(value):
    raise ZeroDivisionError("no way")
"""


def spec(function: str, **more: Any) -> dict[str, Any]:
    transforms = [{"kind": "cast", "dtype": "float64"}, {"kind": "python", "function": function, **more}]
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "transforms": transforms}}}


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


def batch() -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "metrics.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return "metrics.py"


def recorded(wanted: Any, path: Path, **options: Any) -> Any:
    model = net()
    with probes.attach(model, wanted, out=path, **options) as run, run.epoch(0):
        for x in run.steps([batch(), batch() + 1]):
            model(x)
    return probes.open(path)


def test_a_function_of_a_file_that_is_allowed_is_applied_and_its_digest_recorded(metrics: str, tmp_path: Path) -> None:
    found = recorded(spec("metrics.py:spectral"), tmp_path / "run", allow_code=[metrics])
    with torch.no_grad():
        expected = [torch.linalg.matrix_norm(net()[0](x).double(), ord=2) for x in (batch(), batch() + 1)]
    assert torch.equal(found["p", "0"].torch(), torch.stack(expected))
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    digest = sha256(CODE.encode()).hexdigest()
    assert digest in json.dumps(manifest)
    assert probes.verify(tmp_path / "run").ok


def test_a_function_of_the_program_is_given_by_name(tmp_path: Path) -> None:
    def rows(value: Tensor) -> int:
        return value.shape[0]

    found = recorded(spec("rows"), tmp_path / "run", functions={"rows": rows})
    assert found["p", "0"].numpy().tolist() == [5, 5]
    assert found["p", "0"].dtype == "int64"
    loaded = with_functions(probes.load(spec("rows")), functions={"rows": rows})
    assert probes.look(net(), loaded, batch())["p", "0"].numpy().tolist() == [5]


def test_a_function_does_not_change_the_value_or_the_random_state(metrics: str, tmp_path: Path) -> None:
    wanted = with_functions(probes.load(spec("metrics.py:count")), [metrics])
    torch.manual_seed(7)
    before = torch.get_rng_state()
    look = probes.look(net().eval(), wanted, batch())
    torch.manual_seed(7)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(look.output, net()(batch()))
    assert look["p", "0"].numpy().tolist() == [15]


def test_random_numbers_that_a_function_draws_are_not_missing_in_the_program(tmp_path: Path) -> None:
    def draws(value: Tensor) -> float:
        return random.random() + float(np.random.rand()) + float(torch.rand(()))

    def program() -> list[Any]:
        model = net()
        drawn = [(model(batch()).sum().item(), random.random(), np.random.rand(), torch.rand(2).tolist()) for _ in range(3)]
        return [*drawn, random.random()]

    def seeded() -> None:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)

    seeded()
    bare = program()
    seeded()
    model = net()
    wanted = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "transforms": [{"kind": "python", "function": "draws"}]}}}
    with probes.attach(model, wanted, out=tmp_path / "run", functions={"draws": draws}):
        drawn = [(model(batch()).sum().item(), random.random(), np.random.rand(), torch.rand(2).tolist()) for _ in range(3)]
        probed = [*drawn, random.random()]
    assert probed == bare
    assert len(probes.open(tmp_path / "run")["p", "0"]) == 3


def test_a_function_that_raises_skips_the_value(metrics: str, tmp_path: Path) -> None:
    wanted = spec("metrics.py:broken")
    wanted["probes"]["other"] = {"hook": "forward", "modules": ["1"]}
    model = net()
    run = probes.attach(model, wanted, out=tmp_path / "run", allow_code=[metrics])
    run.start()
    model(batch())
    with pytest.raises(probes.ProbesError, match="no way"):
        run.close()
    assert len(probes.open(tmp_path / "run")["other", "1"]) == 1


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        ("metrics.py:spectral", {}, PlanError, r'(?s)"metrics.py" is code.*--allow-code metrics.py'),
        ("rows", {}, PlanError, "the program gives no function `rows`"),
        ("metrics.py:spektral", {"allow_code": ["metrics.py"]}, SpecError, "(?s)has no function `spektral`.*did you mean `spectral`"),
        ("metrics.py:spectral", {"allow_code": ["metric.py"]}, UsageError, 'runs no code of "metric.py"; did you mean `metrics.py`'),
        ("rows", {"functions": {"row": len}}, UsageError, "uses no function `row`; did you mean `rows`"),
        ("../metrics.py:f", {}, SpecError, "is not a function; write FILE.py:NAME"),
        ("missing.py:f", {"allow_code": ["missing.py"]}, probes.ProbesError, "missing.py"),
    ],
)
def test_a_function_that_is_not_allowed_or_not_given_or_missing_is_refused(
    function: str, options: dict[str, Any], error: type[Exception], message: str, metrics: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        probes.attach(net(), spec(function), out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_the_one_of_the_spec_is_refused(metrics: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="and the spec says 000000000000"):
        probes.attach(net(), spec("metrics.py:spectral", sha256="0" * 64), out=tmp_path / "run", allow_code=[metrics])


def test_a_python_transform_without_its_function_has_no_prediction() -> None:
    with pytest.raises(SignatureError, match="is run only if it is allowed"):
        made("python", function="m.py:f").out(Signature("float32"))
