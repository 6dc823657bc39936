"""The tensor that an edit takes from a file or from an earlier run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probes.digest import blake3_hex
from probes.edits.kernels.source import EditSource
from probes.errors import ProbesError
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.reader import run as reader


def source_of(draft: ProbeDraft, target: MatchedValue) -> tuple[Tensor | None, str]:
    """The tensor that an edit's `from` names, and BLAKE3 of its bytes; (None, "") without one."""
    source: EditSource | None = getattr(draft.probe.edit, "from_", None)
    if source is None:
        return None, ""
    folder = Path(draft.loaded.name).parent
    try:
        found = _from_file(folder / source.file) if source.file is not None else _from_run(folder, source, target)
    except (ProbesError, OSError, ValueError, LookupError) as error:
        message = f"the source of the edit cannot be read: {error}"
        draft.refuse("edit-source", message, "paths are relative to the folder of the spec", "edit", "from")
        return None, ""
    return found, blake3_hex(found.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _from_file(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False).copy())


def _from_run(folder: Path, source: EditSource, target: MatchedValue) -> Tensor:
    run = reader.open(folder / str(source.run))
    run = run if source.phase is None else run.sel(phase=source.phase)
    wanted = target.path if source.target is None else source.target
    series = run[(str(source.probe), wanted)] if source.leaf is None else run[(str(source.probe), wanted, source.leaf)]
    chosen = series.sel(epoch=source.epoch, step=source.step)
    if len(chosen) != 1:
        raise LookupError(f"expected one capture at epoch {source.epoch} step {source.step}, found {len(chosen)}")
    return chosen.torch()[0].clone()
