"""Every program that people open HDF5 files with sees the captured numbers and their labels.

Each viewer runs in a process of its own: some bring an HDF5 library, and a reader in C may end its process. Viewers that are not
installed are skipped. `PROBES_VIEWERS` names another Python to run them with, and `NODE_PATH` the folder that holds h5wasm.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from tests.capture_file.viewers.with_python import VIEWERS
from tests.reader.recorded import Recording

HERE = Path(__file__).parent / "viewers"
PYTHON = os.environ.get("PROBES_VIEWERS", sys.executable)
ABSENT = 77
STEPS = (0, 10)
HALF = np.array([[0, 1, 2.5], [np.inf, np.nan, 6e-8]], "<f2")
STATS = ["mean", "größte", "nan"]
NO_HALVES = {"h5wasm"}  # it refuses floats of 16 bits with a message


def taken(step: int) -> dict[str, tuple[np.ndarray[Any, Any], dict[str, Any]]]:
    """What is captured in a step: probe -> the stored bits and how they are described."""
    return {
        "brain": (np.array([0x3F80, 0x4000, 0xC040], "<u2"), {"dtype": "bfloat16"}),
        "complex": (np.array([[1.5, -2.0]], "<f4"), {"dtype": "complex64", "shape": (1,)}),
        "empty": (np.zeros((0, 3), "<f4"), {}),
        "flags": (np.array([1, 0, 1], "u1"), {"dtype": "bool"}),
        "half": (HALF, {"dims": ("batch", "channel")}),
        "long": (np.zeros(70_000, "<f4"), {}),
        "quantile": (np.array([step, 2.0], "<f8"), {"dims": ("quantile",), "coords": {"quantile": [0.05, 0.95]}}),
        "ragged": (np.full((1 + step, 2 + step), step, "<f2"), {}),
        "rows": (np.full((1 + step, 2), step, "<f4"), {"dims": ("batch", "channel")}),
        "stats": (np.array([1.5, step, np.nan], "<f8"), {"dims": ("stat",), "coords": {"stat": STATS}}),
        "whole": (np.array(-(2**40) - step, "<i8"), {}),
    }


def recorded(folder: Path, compression: str) -> Path:
    recording = Recording(folder)
    for step in STEPS:
        for probe, (bits, about) in taken(step).items():
            recording.take(bits, key=SeriesKey(probe, "fc1", "output", "train"), step=step, **about)
    return recording.sealed(compression=compression)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("viewers"), "none")


def numbers(probe: str) -> list[Any]:
    """The numbers of a probe as every viewer should have them, flat."""
    found: list[Any] = []
    for step in STEPS:
        bits, about = taken(step)[probe]
        values = (bits.astype("<u4") << 16).view("<f4") if about.get("dtype") == "bfloat16" else bits
        found += values.astype("f8").ravel().tolist()
    return found


def flat(values: Any) -> list[Any]:
    return [one for row in values for one in flat(row)] if isinstance(values, list) else [values]


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whether numbers are equal, each NaN to each NaN."""
    floats = [float(one) for one in found]  # JavaScript has no JSON for them
    return len(floats) == len(expected) and all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(floats, expected, strict=True))


def saw(words: list[str | Path]) -> dict[str, Any]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == ABSENT:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any], viewer: str) -> None:
    for probe in taken(0):
        series = found[f"{probe}/fc1:output"]
        if viewer in NO_HALVES and probe in ("brain", "half", "ragged"):
            assert series["values"] == "Float16 not supported"
            continue
        assert same(flat(series["values"]), numbers(probe)), f"{viewer} sees other numbers of `{probe}`: {str(series['values'])[:200]}"
    axes = {probe: found[f"{probe}/fc1:output"]["axes"] for probe in taken(0)}
    assert axes["stats"]["stat"] == STATS
    assert axes["quantile"]["quantile"] == [0.05, 0.95]
    assert axes["rows"]["channel"] == axes["half"]["batch"] == [0, 1]
    for probe in ("stats", "half", "whole", "long"):
        assert axes[probe]["step"] == list(STEPS)


@pytest.mark.parametrize("viewer", [pytest.param(name, marks=[pytest.mark.torture] * (name == "pandas")) for name in VIEWERS])
def test_a_viewer_sees_the_captured_numbers_and_their_labels(viewer: str, file: Path) -> None:
    found = saw([PYTHON, HERE / "with_python.py", viewer, file])
    check(found, viewer)
    if viewer == "silx":
        assert found["default"]["values"] == "/captures/brain/fc1:output"


@pytest.mark.parametrize("viewer", ["h5py", "netCDF4"])
def test_a_viewer_sees_the_numbers_of_a_compressed_file(viewer: str, tmp_path: Path) -> None:
    check(saw([PYTHON, HERE / "with_python.py", viewer, recorded(tmp_path, "gzip")]), viewer)


def test_a_browser_sees_the_captured_numbers_and_their_labels(file: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("`node` is not installed")
    check(saw([node, HERE / "with_h5wasm.mjs", file]), "h5wasm")


def printed(words: list[str | Path]) -> str:
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"`{words[0]}` is not installed")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_text(found: re.Match[str] | None, probe: str) -> None:
    assert found is not None, probe
    words = re.findall(r"[-+\w.]+", found[1].replace("NaNf", "nan").replace("Infinityf", "inf"))
    assert same(words, numbers(probe)), found[1][:200]


def test_h5dump_prints_the_captured_numbers(file: Path) -> None:
    for probe in ("brain", "half", "quantile", "whole"):
        text = printed(["h5dump", "-y", "-w", "0", "-m", "%.17g", "-d", f"/captures/{probe}/fc1:output/values", file])
        check_text(re.search(r"DATA \{(.*?)\}", text, re.DOTALL), probe)


def test_ncdump_prints_the_captured_numbers(file: Path) -> None:
    groups = printed(["ncdump", "-p", "17,17", "-v", "values", file]).split("\n  group: ")
    texts = {text.partition(" ")[0]: text for text in groups}
    for probe in ("brain", "half", "quantile", "whole"):
        check_text(re.search(r"values =(.*?);", texts[probe].rpartition("data:")[2], re.DOTALL), probe)


def test_our_own_reader_and_verifier_take_the_file_that_viewers_take(file: Path) -> None:
    run = probes.open(file.parent)
    assert same(run["half", "fc1"].numpy().astype("f8").ravel().tolist(), numbers("half"))
    assert run["stats", "fc1"].signature.coords == {"stat": tuple(STATS)}
    odd = {"extra-object", "missing-object", "attribute-edited", "unsafe-type", "damaged", "captures-root"}
    assert not odd & {finding.code for finding in probes.verify(file).findings}


def test_a_scale_without_values_reads_as_zeros_and_not_as_unwritten_memory(file: Path) -> None:
    import h5py

    with h5py.File(file) as found:
        for name in ("captures/long/fc1:output/dim_0", "captures/stats/fc1:output/digest_byte"):
            assert not found[name][...].any()
        assert list(found["captures/long/fc1:output"].attrs["axes"]) == [b"step", b"."]
