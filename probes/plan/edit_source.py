"""The tensors that an edit takes from a file, from an earlier run, or from the program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probes.component import Edit
from probes.digest import blake3_hex
from probes.edits.kernels.tensor_source import EditSource
from probes.errors import ProbesError, nearest
from probes.plan.binding import Binding
from probes.plan.draft import MatchedValue, ProbeDraft


def with_edit_tensors(draft: ProbeDraft, target: MatchedValue, binding: Binding, edit: Edit) -> Binding:
    """A binding of an edit, with the tensors that the edit takes."""
    source, digest = _source(draft, target, edit)
    found = {name: _given(draft, name, ("edit",))[0] for name in dict.fromkeys(edit.given_names())}
    given = {name: tensor for name, tensor in found.items() if tensor is not None}
    digests = {name: digest_of(tensor) for name, tensor in given.items()}
    return replace(binding, source=source, source_blake3=digest, given=given, given_blake3=digests)


def _source(draft: ProbeDraft, target: MatchedValue, edit: Edit) -> tuple[Tensor | None, str]:
    """The tensor that an edit's `from` names, and BLAKE3 of its bytes; (None, "") without one."""
    source: EditSource | None = getattr(edit, "from_", None)
    if source is None:
        return None, ""
    if source.given is not None:
        return _given(draft, source.given)
    folder = Path(draft.loaded.name).parent
    try:
        found = _from_file(folder / source.file) if source.file is not None else _from_run(folder, source, target)
    except (ProbesError, OSError, ValueError, LookupError) as error:
        message = f"the source of the edit cannot be read: {error}"
        draft.refuse("edit-source", message, "paths are relative to the folder of the spec", "edit", "from")
        return None, ""
    return found, digest_of(found)


def digest_of(tensor: Tensor) -> str:
    """BLAKE3 of the bytes of a tensor on the host."""
    return blake3_hex(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def tensor_of(value: Any) -> Tensor:
    """A copy on the host of a value that a program gives: a tensor, an array, a number or a list of numbers."""
    return torch.as_tensor(value).detach().cpu().clone()


def given_name(edit: Edit | None) -> str:
    """The name of the tensor that the program gives to an edit; empty if it gives none."""
    source: EditSource | None = getattr(edit, "from_", None)
    return (source.given or "") if source is not None else ""


def given_names(edit: Edit) -> tuple[str, ...]:
    """The names of all tensors that the program gives to an edit."""
    source = given_name(edit)
    return tuple(dict.fromkeys([*([source] if source else []), *edit.given_names()]))


def _given(draft: ProbeDraft, name: str, place: tuple[str, ...] = ("edit", "from")) -> tuple[Tensor | None, str]:
    """The tensors that the program gives; without a program, as in `probes plan`, notes that it must give them."""
    if draft.given is None:
        draft.note("edit-source", f'`{name}` is given by the program: `attach(..., given={{"{name}": tensor}})`', *place)
        return None, ""
    if name not in draft.given:
        hint = nearest(name, draft.given) or f'attach with `given={{"{name}": tensor}}`'
        draft.refuse("edit-source", f"the program does not give `{name}`", hint, *place)
        return None, ""
    try:
        found = tensor_of(draft.given[name])
    except (TypeError, ValueError, RuntimeError) as error:
        draft.refuse("edit-source", f"`{name}` is not a tensor: {error}", "give a tensor, an array or a number", *place)
        return None, ""
    return found, digest_of(found)


def _from_file(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False).copy())


def _from_run(folder: Path, source: EditSource, target: MatchedValue) -> Tensor:
    from probes.reader import run as reader  # 40 modules; a start without such an edit does not import them

    run = reader.open(folder / str(source.run))
    run = run if source.phase is None else run.sel(phase=source.phase)
    wanted = target.path if source.target is None else source.target
    series = run[(str(source.probe), wanted)] if source.leaf is None else run[(str(source.probe), wanted, source.leaf)]
    chosen = series.sel(epoch=source.epoch, step=source.step)
    if len(chosen) != 1:
        raise LookupError(f"expected one capture at epoch {source.epoch} step {source.step}, found {len(chosen)}")
    return chosen.torch()[0].clone()
