"""Write the text of a first spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probes.plan.suggestion import SuggestedTarget, Suggestion

SCHEMA = "probe-spec.v1.json"
MODELINES = f"""\
# yaml-language-server: $schema={SCHEMA}
# $schema: {SCHEMA}
"""
"""Comments by which editors find the schema: YAML language server, and JetBrains."""

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
STATS = """\
    transforms:
      - {kind: stats}             # ten statistics of each value; remove this line to store the values
"""


@dataclass(frozen=True)
class Answers:
    """The choices for a first spec.

    Attributes:
        modules: patterns to capture; empty for the suggested ones.
        keep: `stats` or `values`.
        every: capture every n-th step.
        phases: those in which the model is called, such as `train`.
    """

    modules: tuple[str, ...] = ()
    keep: str = "stats"
    every: int = 10
    phases: tuple[str, ...] = ("train",)

    @property
    def schedule(self) -> str:
        """The `defaults` block with the schedule."""
        phases = ", ".join(self.phases)
        if self.every == 1:
            return f"defaults:\n  when: {{phases: [{phases}]}}   # every step; `steps: {{every: 10}}` captures every tenth step\n"
        often = f"the first three steps of an epoch, then every {self.every} steps"
        return f"defaults:\n  when: {{phases: [{phases}], steps: {{every: {self.every}, first: 3}}}}   # {often}\n"


def plain_text(answers: Answers) -> str:
    """Return a spec for an unknown model: the top-level modules."""
    remark = "# `probes tree --model FILE.py:CALLABLE` lists the modules"
    patterns = _patterns(answers.modules) if answers.modules else '["*"]'
    probe = _outputs(answers, patterns, remark if answers.modules else f"# top-level modules; {remark[2:]}")
    return f"{MODELINES}version: 1\nabout: What does each part of the model return?\n\n{answers.schedule}\nprobes:\n{probe}"


def text_for(models: Mapping[str, tuple[str, Suggestion]], answers: Answers) -> str:
    """Return a spec for known models.

    Args:
        models: name in the spec (`""` for a single model) -> class name and suggestion.
        answers: the choices.
    """
    kinds = " and ".join(kind for kind, _ in models.values())
    lines = "".join(f"  {name}: {kind}\n" for name, (kind, _) in models.items() if name)
    named = f"\nmodels:\n{lines}" if lines else ""
    trained = "train" in answers.phases and any(found.trained for _, found in models.values())
    reach = ", and do gradients reach them" if trained else ""
    head = f"version: 1\nabout: What do the parts of {kinds} return{reach}?\n"
    probes = "\n".join(_probes(name, found, answers) for name, (_, found) in models.items())
    return f"{MODELINES}{head}{named}\n{answers.schedule}\nprobes:\n{probes}"


def preset_text(text: str, found: Suggestion | None, answers: Answers) -> str:
    """Return a preset as a first spec, with the targets of a model as comments."""
    text = _with_modules(text, answers.modules) if answers.modules else text
    lines = [MODELINES.rstrip()]
    for line in text.splitlines():
        lines.append(line)
        if found is not None and line.startswith("  layers:"):
            lines += [f"  # layers: {_quoted(target.pattern)}  {remark(target)}" for target in (*found.chosen, *found.others)]
    return "\n".join(lines) + "\n"


def _with_modules(text: str, modules: tuple[str, ...]) -> str:
    """Return a preset with other modules: in its variable, or instead of it for several patterns."""
    lines = text.splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("  layers:"))
    if len(modules) == 1:
        lines[place] = f"  layers: {_quoted(modules[0])}"
    else:
        only = lines[place - 1] == "vars:" and not lines[place + 1].startswith("  ")
        del lines[place - 1 if only else place : place + 1]
    return "\n".join(lines).replace('["${layers}"]', '["${layers}"]' if len(modules) == 1 else _patterns(modules))


def remark(target: SuggestedTarget) -> str:
    """Return a comment that describes a target."""
    kind = target.kind if target.count == 1 else f"{target.count} x {target.kind}"
    return f"# {kind}: {target.value}" if target.value else f"# {kind}"


def _probes(name: str, found: Suggestion, answers: Answers) -> str:
    suffix, model = (f"-{name}", f"    model: {name}\n") if name else ("", "")
    chosen = [target for target in (*found.chosen, *found.others) if target.pattern in answers.modules] if answers.modules else found.chosen
    remarks = "; ".join(dict.fromkeys(remark(target)[2:] for target in chosen))
    patterns = _patterns(answers.modules or tuple(target.pattern for target in found.chosen))
    others = tuple(target for target in (*found.chosen, *found.others) if target not in chosen)
    outputs = _outputs(answers, patterns, f"# {remarks}" if remarks else "", suffix, model, others)
    wanted = found.trained and "train" in answers.phases
    return f"{outputs}\n{GRADIENTS.format(suffix=suffix, model=model)}" if wanted else outputs


def _outputs(
    answers: Answers, patterns: str, note: str, suffix: str = "", model: str = "", others: tuple[SuggestedTarget, ...] = ()
) -> str:
    alternatives = "".join(f"    # modules: [{_quoted(target.pattern)}]  {remark(target)}\n" for target in others)
    head = f"  outputs{suffix}:\n{model}    hook: forward\n    modules: {patterns}  {note}".rstrip()
    return f"{head}\n{alternatives}{STATS if answers.keep == 'stats' else ''}"


def _patterns(patterns: tuple[str, ...]) -> str:
    return "[" + ", ".join(_quoted(pattern) for pattern in patterns) + "]"


def _quoted(pattern: str) -> str:
    return json.dumps(pattern, ensure_ascii=False)
