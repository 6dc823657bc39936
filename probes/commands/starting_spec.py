"""The text of a first spec, to be changed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probes.plan.suggestion import Suggestion, Target

SCHEMA = "probe-spec.v1.json"
MODELINES = f"""\
# yaml-language-server: $schema={SCHEMA}
# $schema: {SCHEMA}
"""
"""What editors find the schema by: VS Code and others with the YAML language server, and those of JetBrains."""

SAMPLED = """\
defaults:
  when: {phases: [train], steps: {every: 10, first: 3}}   # the first three steps of an epoch, then every tenth
"""
GRADIENTS = """\
  gradients{suffix}:
{model}    hook: tensor
    tensors: ["**.weight"]
    values: [grad]
    stage: final                  # as the optimizer uses it, after clipping and unscaling
    transforms:
      - {{kind: cast, dtype: float32}}
      - {{kind: norm}}
"""


def plain_text() -> str:
    """A spec for a model that is not known: the parts of whatever comes."""
    probe = _outputs('["*"]', "# the parts of the model; `probes tree --model FILE.py:CALLABLE` shows what there is", "", "")
    return f"{MODELINES}version: 1\nabout: What does each part of the model return?\n\n{SAMPLED}\nprobes:\n{probe}"


def text_for(models: Mapping[str, tuple[str, Suggestion]]) -> str:
    """A spec for models that are known.

    Args:
        models: name in the spec, `""` where there is only one -> class name and what to look at.
    """
    kinds = " and ".join(kind for kind, _ in models.values())
    lines = "".join(f"  {name}: {kind}\n" for name, (kind, _) in models.items() if name)
    named = f"\nmodels:\n{lines}" if lines else ""
    head = f"version: 1\nabout: What do the parts of {kinds} return, and do gradients reach them?\n"
    probes = "\n".join(_probes(name, found) for name, (_, found) in models.items())
    return f"{MODELINES}{head}{named}\n{SAMPLED}\nprobes:\n{probes}"


def preset_text(text: str, found: Suggestion | None) -> str:
    """A preset as the start of a spec of one's own, with the targets of a model beside its own ones."""
    lines = [f"{MODELINES.rstrip()}"]
    for line in text.splitlines():
        lines.append(line)
        if found is not None and line.startswith("  layers:"):
            lines += [f"  # layers: {_quoted(target.pattern)}  {_remark(target)}" for target in (*found.chosen, *found.others)]
    return "\n".join(lines) + "\n"


def _probes(name: str, found: Suggestion) -> str:
    suffix, model = (f"-{name}", f"    model: {name}\n") if name else ("", "")
    patterns = "[" + ", ".join(_quoted(target.pattern) for target in found.chosen) + "]"
    remarks = "; ".join(dict.fromkeys(_remark(target)[2:] for target in found.chosen))
    outputs = _outputs(patterns, f"# {remarks}", suffix, model, found.others)
    return f"{outputs}\n{GRADIENTS.format(suffix=suffix, model=model)}" if found.trained else outputs


def _outputs(patterns: str, remark: str, suffix: str, model: str, others: tuple[Target, ...] = ()) -> str:
    alternatives = "".join(f"    # modules: [{_quoted(target.pattern)}]  {_remark(target)}\n" for target in others)
    return f"""\
  outputs{suffix}:
{model}    hook: forward
    modules: {patterns}  {remark}
{alternatives}    transforms:
      - {{kind: stats}}             # ten numbers of each value; without it the values themselves are kept
"""


def _quoted(pattern: str) -> str:
    return json.dumps(pattern, ensure_ascii=False)


def _remark(target: Target) -> str:
    return f"# {target.kind}" if target.count == 1 else f"# {target.count} x {target.kind}"
