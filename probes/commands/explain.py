"""`probes explain`: explain error codes."""

from __future__ import annotations

import json
from textwrap import fill, indent

import click

from probes.commands.rendering.table import table
from probes.error_codes import CODES, FILES, MODEL, PROOF, SPEC, YAML, Code
from probes.errors import UsageError, nearest
from probes.spec.spec_files import preset_names

WIDTH = 100
FAMILIES = {
    "The text of a spec": YAML,
    "What a spec says": SPEC,
    "A spec, a model and a run": MODEL,
    "What `probes verify` finds": PROOF,
    "Files that are refused": FILES,
}


@click.command()
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: {code: {meaning, wrong, right, advice}}.")
def explain(code: str | None, as_json: bool) -> None:
    """Explain CODE: what was found, why it happens, what to do, with examples; without CODE, list all codes."""
    if code is not None and code not in CODES:
        if f"preset:{code.removeprefix('preset:')}" in preset_names():
            raise UsageError(f"`{code}` is a preset; `probes presets {code.removeprefix('preset:')}` shows it")
        raise UsageError(f"`{code}` is not an error code; {nearest(code, CODES) or '`probes explain` lists all codes'}")
    rows = CODES if code is None else {code: CODES[code]}
    if as_json:
        click.echo(json.dumps({name: row._asdict() for name, row in rows.items()}, indent=2, ensure_ascii=False))
    else:
        click.echo(listing() if code is None else text(code, CODES[code]))


def listing() -> str:
    """Return all codes, grouped by family."""
    return "\n\n".join(f"{title}\n\n{table(('code', 'meaning'), rows, kept=('meaning',))}" for title, rows in _tables().items())


def text(code: str, row: Code) -> str:
    """Return one code as text for a terminal."""
    parts = [f"{click.style(code, bold=True)}\n\n{row.meaning}"]
    parts += [fill(row.advice, WIDTH, break_long_words=False, break_on_hyphens=False)] if row.advice else []
    parts += [f"{click.style('wrong', fg='red')}\n{indent(row.wrong, '    ')}"] if row.wrong else []
    parts += [f"{click.style('right', fg='green')}\n{indent(row.right, '    ')}"] if row.right else []
    return "\n\n".join(parts)


def _tables() -> dict[str, list[tuple[str, str]]]:
    return {click.style(title, bold=True): [(code, row.meaning) for code, row in rows.items()] for title, rows in FAMILIES.items()}
