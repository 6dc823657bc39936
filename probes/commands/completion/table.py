"""The parameters of every verb as a table, so that a completion imports no verb: some import numpy and h5py, which takes half a second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from probes.commands.completion.candidates import CANDIDATES

TABLE = Path(__file__).with_name("table.json")
KINDS = {
    **dict.fromkeys(("a", "b", "path", "run", "runs"), "run"),
    **dict.fromkeys(("patterns", "series"), "series"),
    **dict.fromkeys(("spec", "specs"), "spec"),
    "code": "code",
    "mapping": "target",
    "preset": "preset",
    "words": "file",
}
"""The type of the values of a parameter, by its name."""


def rows(commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """The table of the verbs; `make regenerate` writes it."""
    return {
        name: {"interspersed": command.allow_interspersed_args, "params": [_row(one) for one in command.params]}
        for name, command in commands.items()
    }


def _row(param: click.Parameter) -> dict[str, Any]:
    option = isinstance(param, click.Option)
    kind = "" if option and "--allow-code" in param.opts else KINDS.get(str(param.name), "")
    row: dict[str, Any] = {"name": param.name, "opts": [*param.opts, *param.secondary_opts] if option else []}
    row |= {"help": param.help} if isinstance(param, click.Option) else {}
    row |= {"flag": True} if isinstance(param, click.Option) and param.is_flag else {}
    row |= {"many": True} if param.multiple or param.nargs == -1 else {}
    if isinstance(param.type, click.Choice):
        return row | {"choices": list(param.type.choices)}
    files = isinstance(param.type, click.Path) or str(param.metavar).startswith("FILE")
    kind = kind or ("file" if files else "")
    return row | ({"kind": kind} if kind else {})


@cache
def _table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def command_of(verb: str) -> click.Command | None:
    """A verb with its parameters, without what it does; None if there is no such verb."""
    row = _table().get(verb)
    if row is None:
        return None
    settings = {"allow_interspersed_args": row["interspersed"], "help_option_names": ["-h", "--help"]}
    return click.Command(verb, params=[_param(one) for one in row["params"]], context_settings=settings)


def _param(row: Mapping[str, Any]) -> click.Parameter:
    many, complete = row.get("many", False), CANDIDATES.get(row.get("kind", ""))
    kind = click.Choice(row["choices"]) if "choices" in row else click.STRING
    if not row["opts"]:
        return click.Argument([row["name"]], nargs=-1 if many else 1, type=kind, shell_complete=complete)
    flag = row.get("flag", False)
    return click.Option(
        [row["name"], *row["opts"]], help=row["help"], is_flag=flag, type=None if flag else kind, multiple=many, shell_complete=complete
    )
