"""Modules whose kernels PyTorch chooses by whether there are hooks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from probes.plan.binding import Binding
from probes.plan.draft import Draft
from probes.plan.tree import Tree


def note_fast_paths(drafts: Sequence[Draft], bindings: Sequence[Binding]) -> None:
    """Note where a hook turns off the fused kernel that `TransformerEncoderLayer` uses in `eval` without gradients.

    The value is captured truly, but with other kernels than a run without probes would use, so that bits may differ.
    """
    for draft in drafts:
        ours = [binding for binding in bindings if binding.name == draft.name and binding.hook != "tensor"]
        if set(draft.probe.when.phases) <= {"train"}:
            continue
        inside = [binding.target for binding in ours if _in_encoder_layer(draft.tree, binding.module)]
        if inside:
            draft.note(
                "fast-path",
                f"hooks on `{inside[0]}`{f' and {len(inside) - 1} more' if len(inside) > 1 else ''} turn off the fused kernel of "
                "TransformerEncoderLayer in `eval`: there the run is not neutral as to kernels, and last bits may differ",
            )


def _in_encoder_layer(tree: Tree, path: str) -> bool:
    levels = path.split(".")
    above = [".".join(levels[:count]) for count in range(1, len(levels) + 1)]
    return any(isinstance(tree.nodes[name].module, torch.nn.TransformerEncoderLayer) for name in above if name in tree.nodes)
