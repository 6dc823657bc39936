"""Edits as a spec makes them: from plain data, through the registry."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from probes.component import Edit, EditContext
from probes.registry import component
from probes.signature import Signature


def made(kind: str, **keys: Any) -> Edit:
    """The edit of a kind; a key that is a keyword of Python is written with an underscore behind it."""
    edit = component("edit", kind).model_validate({"kind": kind, **{name.rstrip("_"): value for name, value in keys.items()}})
    assert isinstance(edit, Edit)
    return edit


def applied(edit: Edit, value: Tensor, *dims: str, source: Tensor | None = None, seed: int = 0) -> Tensor:
    """The edited value."""
    signature = Signature(str(value.dtype).removeprefix("torch."), tuple(value.shape), dims or None)
    return edit.begin(EditContext(signature, source))(value, torch.Generator().manual_seed(seed))[0]
