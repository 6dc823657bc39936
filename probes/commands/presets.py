"""`probes presets`: list the ready-made specs, or show one."""

from __future__ import annotations

import json

import click

from probes.commands.rendering.table import table
from probes.errors import UsageError, nearest
from probes.spec.spec_files import file_bytes, preset_names, preset_path

VIEWS = {
    "gradient-flow": "layers over steps, probe `gradients`: a column that fades towards the first row is a gradient that vanishes; "
    "the rules that were broken name the layers",
    "dead-units": "values as pictures, `largest`: units over steps, where a dead unit is a row of 0; "
    "the rules that were broken name the units",
    "saturation": "values as pictures, `smallest` and `largest`: units over steps, where a saturated unit is a row at an end; "
    "the rules that were broken name the units",
    "activation-stats": "layers over steps, figures `std`, `zeros` and `nan` of `outputs`; a red cell is not finite",
    "layer-outputs": "values as pictures: the output of each layer in the first step of each epoch",
    "weight-and-grad-norms": "layers over steps, probes `weights` and `gradients`; the curve of a row shows whether its norm grows",
    "update-ratio": "layers over steps, probes `updates` and `weights`; a healthy ratio of the two is about 0.001",
    "save-values": "values as pictures: inputs, outputs and gradients of the chosen modules",
    "attention-entropy": "values as pictures, `entropy`: heads over steps; a row near 0 is a head that attends to one position",
    "gradient-noise-scale": "layers over steps: the norms of single gradients and of their sums, row by row",
    "memory-by-module": "layers over steps, probe `memory`: bytes before, left and at the peak of each module",
    "nan-hunt": "what triggers found: the first value that is not finite and the module that made it; "
    "then layers over steps, figure `std`, for the steps before it",
}
"""Which part of the page that `probes report` writes answers the question of a preset."""
HINT = "`probes presets NAME` shows one; `probes run preset:NAME SCRIPT` uses it; `probes init --preset NAME` writes a copy to change"


@click.command()
@click.argument("preset", metavar="[NAME]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: {name: {about, spec, report}}.")
def presets(preset: str | None, as_json: bool) -> None:
    """List the presets with the question that each answers; with NAME, print its spec and what a report shows of it."""
    found = {name.removeprefix("preset:"): spec_of(name) for name in preset_names()}
    if preset is not None:
        name = preset.removeprefix("preset:")
        if name not in found:
            raise UsageError(f"there is no preset `{name}`; {nearest(name, found) or 'known: ' + ', '.join(found)}")
        found = {name: found[name]}
    if as_json:
        rows = {name: {"about": about(text), "spec": text, "report": VIEWS.get(name, "")} for name, text in found.items()}
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif preset is None:
        rows_of_table = [(name, about(text)) for name, text in found.items()]
        click.echo(f"{table(('preset', 'what it answers'), rows_of_table, kept=('what it answers',))}\n\n{HINT}")
    else:
        click.echo(_one(*found.popitem()))


def spec_of(name: str) -> str:
    """The text of a preset that is called `preset:NAME`."""
    path = preset_path(name)
    if path is None:
        raise AssertionError(f"BUG: the preset {name!r} has no file")
    return file_bytes(path).decode()


def about(text: str) -> str:
    """The question that a preset answers, as its first line says it."""
    return next((line.removeprefix("about: ") for line in text.splitlines() if line.startswith("about: ")), "")


def _one(name: str, text: str) -> str:
    """A preset as comments and a spec, so that the output is a spec too."""
    lines = [f"# preset:{name}"]
    lines += [f"# In the page of `probes report`: {VIEWS[name]}."] if name in VIEWS else []
    lines += [f"# Use it:    probes run preset:{name} train.py", f"# Change it: probes init --preset {name}"]
    return "\n".join([*lines, text.rstrip()])
