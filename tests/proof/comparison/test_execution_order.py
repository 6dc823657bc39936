from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn

import probes
from probes.capture_file.grouped import group_by_series, steps_in_order
from probes.clock import SeriesKey
from probes.journal.scan import scan
from probes.journal.writer import Journal
from probes.proof.comparison.execution_order import ranges
from probes.run_directory.seal import seal
from probes.signature import Descriptor


class Net(nn.Module):
    """The layer that is declared first is executed last, and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.late = nn.Linear(3, 3)
        self.early = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.late(self.early(x))
        return self.late(first)  # type: ignore[no-any-return]  # modules return Any


PROBES: dict[str, Any] = {
    "late-first": {"modules": ["late"], "values": ["output", "grad_output"], "when": {"phases": ["train", "eval"]}},
    "outputs": {"modules": ["late", "early"], "values": ["output", "grad_output"], "when": {"phases": ["train", "eval"]}},
}


def recorded(out: Path, *, evaluated: float = 1.0, trained: float = 1.0, scaled: float = 1.0) -> Path:
    """A run that evaluates before it trains."""
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 3)
    with probes.attach(model, {"version": 1, "probes": PROBES}, out=out) as run, run.epoch(0):
        with run.phase("eval"), torch.no_grad():
            model(x * evaluated)
        with run.step():
            (model(x * trained).sum() * scaled).backward()
    return out


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("order") / "a")


def diverges(a: Path, b: Path) -> tuple[str, str, str, int]:
    found = probes.diff(a, b).first
    assert found is not None
    return found.key.target, found.key.leaf, found.key.phase, found.clock.call


def test_the_first_divergence_is_the_layer_that_ran_first(first: Path, tmp_path: Path) -> None:
    assert diverges(first, recorded(tmp_path / "b", trained=2.0)) == ("early", "output", "train", 0)


def test_a_phase_that_ran_before_training_diverges_before_it(first: Path, tmp_path: Path) -> None:
    assert diverges(first, recorded(tmp_path / "b", trained=2.0, evaluated=2.0)) == ("early", "output", "eval", 0)


def test_the_first_divergence_of_gradients_is_in_the_last_call(first: Path, tmp_path: Path) -> None:
    assert diverges(first, recorded(tmp_path / "b", scaled=2.0)) == ("late", "grad_output", "train", 1)


def test_a_constant_order_is_an_attribute_and_a_varying_one_a_column(first: Path) -> None:
    with h5py.File(first / "epoch-0000.h5") as file:
        series = file["captures/outputs"]
        assert series["early:output"].attrs["order"] == 0
        assert series["late:output"]["order"][...].tolist() == [1 + 1, 3 + 1]
        assert bytes(file["order"][()]) == b'[["eval",0,1],["train",0,1]]'


def test_the_order_counts_within_each_step_and_phase_with_late_captures_too(tmp_path: Path) -> None:
    journal = Journal.create(
        tmp_path / "epoch-0000.journal", {"run_id": "r", "epoch": 0, "attempt": 1, "rank": 0, "spec": "", "manifest": {}}
    )
    content = torch.zeros(4)
    a, b, other = (
        journal.descriptor(Descriptor(SeriesKey("p", target, "output", phase), "float32", (4,), None, {}, {}))
        for target, phase in (("a", "train"), ("b", "train"), ("a", "eval"))
    )

    def add(series: int, step: int, call: int = 0, flags: int = 0) -> None:
        journal.add(series, step, 0, call, 0, content.data_ptr(), 16, flags)

    add(b, 0), add(a, 0), add(b, 0, 1)
    journal.commit("train", 0, 0)
    add(other, 0)
    journal.commit("eval", 0, 0)
    add(a, 1), add(a, 0, 1, 1), add(b, 1)
    journal.commit("train", 1, 1)
    journal.end(True, "", {})
    found = {(one.key.target, one.key.phase): one.order.tolist() for one in group_by_series(scan(tmp_path / "epoch-0000.journal"))}
    assert found == {("a", "train"): [1, 3, 0], ("b", "train"): [0, 2, 1], ("a", "eval"): [0]}
    assert steps_in_order(scan(tmp_path / "epoch-0000.journal")) == [["train", 0, 1], ["eval", 0, 1], ["train", 1, 1]]
    seal(tmp_path / "epoch-0000.journal", tmp_path)
    with h5py.File(tmp_path / "epoch-0000.h5") as file:
        assert file["captures/p/a:output/order"][...].tolist() == [1, 3, 0]


def test_ranges_of_steps_count_steps_that_ended_before_them() -> None:
    assert ranges([("train", 0, 10), ("eval", 0, 2), ("train", 10, 5)]) == {"train": [(0, 10, 0), (10, 5, 12)], "eval": [(0, 2, 10)]}


def test_a_journal_and_its_file_have_the_same_order(first: Path, tmp_path: Path) -> None:
    """An epoch that is not sealed yet is compared in the order of its journal."""
    from probes.capture_file.unsealed import UnsealedFile

    path = tmp_path / "epoch-0000.journal"
    journal = Journal.create(path, {"run_id": "r", "epoch": 0, "attempt": 1, "rank": 0, "spec": "", "manifest": {}})
    number = journal.descriptor(Descriptor(SeriesKey("p", "a", "output", "train"), "float32", (1,), None, {}, {}))
    value = torch.zeros(1)
    for call in (2, 0, 1):
        journal.add(number, 0, 0, call, 0, value.data_ptr(), 4)
    journal.commit("train", 0, 0)
    journal.close()
    unsealed = UnsealedFile(path)
    (address,) = unsealed.addresses
    assert unsealed.part(address).orders.tolist() == [1, 2, 0]
    assert unsealed.document("order") == [["train", 0, 1]]
