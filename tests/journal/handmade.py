"""Capture files written by hand with h5py, so that a test can put into one what the writer never would."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

SERIES = "captures/acts/fc1:output"


def text(value: str) -> np.ndarray:
    return np.array(value.encode() or b"\0", f"S{max(len(value.encode()), 1)}")


def write(path: Path, **root: Any) -> Path:
    """A sound file with one series of four captures of (2, 3)."""
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        attributes = {"probes_format": "capture-file.v1", "run_id": "r", "epoch": 0, "attempt": 1, "rank": 0, "segment": 0, "complete": 1}
        set_attributes(file, attributes | root)
        file.create_dataset("manifest", data=text("{}"))
        add_series(file, np.arange(24, dtype="<f4").reshape(4, 2, 3))
    return path


def add_series(file: h5py.File, values: np.ndarray, name: str = SERIES, dtype: str = "float32", **attributes: Any) -> h5py.Group:
    probe, rest = name.split("/")[1:]
    group = file.create_group(name)
    key = {"probe": probe, "target": rest.split(":")[0], "leaf": rest.split(":")[1], "phase": "train"}
    set_attributes(
        group,
        key | {"torch_dtype": dtype, "layout": "stacked", "epoch": 0} | attributes | dict.fromkeys(("microstep", "call", "backward"), 0),
    )
    group.create_dataset("values", data=values)
    group.create_dataset("global_step", data=np.arange(len(values), dtype="<u8"))
    group.create_dataset("step", data=np.arange(len(values), dtype="<u4"))
    return group


def set_attributes(target: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = text(value) if isinstance(value, str) else value
