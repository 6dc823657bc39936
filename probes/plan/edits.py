"""What only the plan can say of edits: where their sources are, and which of them cannot be meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probes.digest import blake3_hex
from probes.edits.kernels.source import EditSource
from probes.errors import ProbesError
from probes.plan.binding import Binding
from probes.plan.draft import Draft, Target
from probes.reader import run as reader


def source_of(draft: Draft, target: Target) -> tuple[Tensor | None, str]:
    """The tensor that an edit's `from` names, and BLAKE3 of its bytes; (None, "") without one."""
    source: EditSource | None = getattr(draft.probe.edit, "from_", None)
    if source is None:
        return None, ""
    folder = Path(draft.loaded.name).parent
    try:
        found = _from_file(folder / source.file) if source.file is not None else _from_run(folder, source, target)
    except (ProbesError, OSError, ValueError, LookupError) as error:
        draft.refuse("edit-source", f"the edit's source cannot be read: {error}", "paths start in the folder of the spec", "edit", "from")
        return None, ""
    return found, blake3_hex(found.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _from_file(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False).copy())


def _from_run(folder: Path, source: EditSource, target: Target) -> Tensor:
    run = reader.open(folder / str(source.run))
    run = run if source.phase is None else run.sel(phase=source.phase)
    wanted = target.path if source.target is None else source.target
    series = run[(str(source.probe), wanted)] if source.leaf is None else run[(str(source.probe), wanted, source.leaf)]
    chosen = series.sel(epoch=source.epoch, step=source.step)
    if len(chosen) != 1:
        raise LookupError(f"there are {len(chosen)} captures at epoch {source.epoch} step {source.step}, one is needed")
    return chosen.torch()[0].clone()


def refuse_bad_edits(drafts: Sequence[Draft], bindings: Sequence[Binding]) -> None:
    """Refuse two edits of one value, and edits of what cannot be rewritten."""
    by_name = {draft.name: draft for draft in drafts}
    seen: dict[tuple[str, str, str], str] = {}
    for binding in bindings:
        edit = binding.probe.edit
        if edit is None:
            continue
        draft = by_name[binding.name]
        place = (binding.model, binding.target, binding.value)
        if place in seen:
            draft.refuse(
                "two-edits",
                f"`{binding.value}` of `{binding.target}` is edited by probe `{seen[place]}` too; one edit of one value",
                "",
                "edit",
            )
        seen[place] = binding.name
        if binding.root == "data":
            draft.refuse(
                "edit-of-data", "a parameter's data is not edited, the value computed from it is", "edit an `output`, or a `grad`", "edit"
            )
        if binding.stage == "final":
            draft.refuse("edit-too-late", "the optimizer has used the gradient when it is `final`", "`stage: accumulated`", "stage")
        if edit.gradients_only and not binding.root.startswith("grad"):
            draft.refuse(
                "edit-of-gradients",
                f"`{edit.kind}` is for gradients, and `{binding.value}` is none",
                "name a gradient in `values`, such as grad_output",
                "edit",
            )
