"""`probes plugins`: list kinds from installed plug-ins."""

from __future__ import annotations

import json
from typing import Any

import click

from probes.commands.rendering.table import table
from probes.plugins import Plugin, granted, installed, is_granted, load, source

NONE = "no plug-ins are installed"
HINT = "a plug-in is imported only if `--allow-plugin KIND` or `allow_plugins=[KIND]` allows it"


@click.command()
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Import this plug-in and show its digest; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plugins(allowed: tuple[str, ...], as_json: bool) -> None:
    """List kinds from installed plug-ins; only plug-ins allowed with --allow-plugin are imported."""
    with granted(allowed):
        found = [_plain(plugin) for plugin in installed()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows = [[str(one[key] or "") for key in ("kind", "family", "distribution", "version", "state")] for one in found]
    click.echo(f"{table(('kind', 'family', 'distribution', 'version', 'state'), rows)}\n\n{HINT}" if rows else NONE)


def _plain(plugin: Plugin) -> dict[str, Any]:
    state, digest = "not allowed", None
    if "." not in plugin.kind:
        state = "unusable: its name has no dot"
    elif is_granted(plugin.kind):
        load(plugin)
        digest = source(plugin)[1]
        state = f"allowed, sha256 {digest[:12]}"
    known = {"kind": plugin.kind, "family": plugin.family, "distribution": plugin.distribution, "version": plugin.version}
    return {**known, "place": plugin.entry.value, "state": state, "sha256": digest}
