"""Event files, read back by TensorBoard itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.component import SinkContext
from probes.sinks.tensorboard import Tensorboard, histogram
from probes.testing import check_sink
from tests.sinks.kernels.test_metrics import reading
from tests.sinks.recorded import expected, trained

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed; the extra `tensorboard` brings it"
)


def read(path: Path) -> object:
    found = accumulator.EventAccumulator(str(path), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    found.Reload()
    return found


def test_the_sink_passes_the_conformance_kit() -> None:
    check_sink(Tensorboard())


def test_tensorboard_reads_the_numbers_of_the_capture_files(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", {"kind": "tensorboard"})
    events = read(tmp_path / "run")
    wanted = expected(tmp_path / "run")
    assert set(events.Tags()["scalars"]) == set(wanted)
    for name, points in wanted.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        np.testing.assert_array_equal(found, np.array(points).astype(np.float32))
    (text,) = events.Tensors("probes/run/text_summary")
    said = dict(line.strip().split(": ", 1) for line in text.tensor_proto.string_val[0].decode().splitlines())
    assert said["probes.ledger_head"] == run.summary().head
    assert list(json.loads(said["probes.captures_roots"]).values()) == list(probes.open(tmp_path / "run").captures_roots.values())
    assert said["probes.run_id"] == probes.open(tmp_path / "run").manifest["run_id"]


def test_a_histogram_is_a_histogram(tmp_path: Path) -> None:
    trained(tmp_path / "run", {"kind": "tensorboard"})
    events = read(tmp_path / "run")
    counts = probes.open(tmp_path / "run").sel(phase="train")["counts", "0"].numpy()
    found = events.Histograms("counts/0/output")
    assert [event.step for event in found] == list(range(6))
    assert [event.histogram_value.bucket for event in found] == counts[:, :-1].tolist()
    assert found[0].histogram_value.bucket_limit == [-1.0, -0.5, 0.0, 0.5, 1.0, 1.0]


def test_the_sums_of_a_histogram_take_the_middle_of_each_bin() -> None:
    found = histogram({"under": 1, "[0, 1)": 2, "[1, 2]": 0, "over": 3, "nan": 4})
    assert (found["num"], found["sum"], found["sum_squares"]) == (6.0, 0 + 2 * 0.5 + 3 * 2, 0 + 2 * 0.25 + 3 * 4)


def test_a_record_that_a_killed_process_left_unfinished_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "probes.tfevents"
    for step in range(2):
        session = Tensorboard().open(SinkContext(0, (path,)))
        session.step([reading({"": float(step)}, global_step=step)])
        session.close()
        path.write_bytes(path.read_bytes() + b"\x40\0\0\0\0\0\0\0torn")
    session = Tensorboard().open(SinkContext(0, (path,)))
    session.close()
    assert [event.value for event in read(tmp_path).Scalars("size/fc1/output")] == [0.0, 1.0]
