"""`probes schema`: print the JSON Schema of a spec or of a manifest."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("of", type=click.Choice(["spec", "manifest"]), default="spec")
def schema(of: str) -> None:
    """Print the JSON Schema of a spec, or of the manifest of a run.

    Editors with a YAML language server find the schema by the first line of a spec:
    `# yaml-language-server: $schema=probe-spec.v1.json`.
    """
    if of == "spec":
        from probes.spec.schema import spec_schema

        found = spec_schema()
    else:
        from probes.run_directory.manifest import json_schema

        found = json_schema()
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))
