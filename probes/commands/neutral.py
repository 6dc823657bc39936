"""`probes neutral`: check that probes do not change what a script computes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from probes.script.neutrality.comparison import NeutralityTrial, NeutralityVerdict
from probes.script.program import program_of
from probes.spec import load_spec


@click.command(context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@click.option("--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Change a value of the spec; repeatable.")
@click.option("--allow-plugin", "allowed", multiple=True, metavar="KIND", help="Allow this plug-in to be imported; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("spec")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE [ARGS]...")
@click.pass_context
def neutral(
    context: click.Context, overrides: tuple[str, ...], allowed: tuple[str, ...], as_json: bool, spec: str, words: tuple[str, ...]
) -> None:
    """Run SCRIPT without and with the probes of SPEC and compare bit for bit.

    This compares the loss of every backward pass, gradients, weights and random number generators at every optimizer step,
    and weights, buffers and hooks of the models at the end. The generators are seeded before the script starts. The script
    runs several times, so it writes its files several times.
    """
    load_spec(spec, overrides=overrides, allow_plugins=allowed)
    program = program_of("neutral", words, spec)
    with tempfile.TemporaryDirectory(prefix="probes-neutral-") as folder:
        verdict = NeutralityTrial(program, spec, overrides, Path(folder), allowed).verdict()
    click.echo(json.dumps(verdict.as_dict(), indent=2) if as_json else text(verdict))
    if not verdict.neutral:
        context.exit(1)


def text(verdict: NeutralityVerdict) -> str:
    """Return the result as text for a terminal."""
    compared = (
        f"{verdict.backwards} backwards, {verdict.steps} optimizer steps, {verdict.tensors} weights and buffers, random number generators"
    )
    lines = [f"neutral: bit-identical in {compared}"] if verdict.neutral else [f"NOT neutral: {verdict.difference}"]
    if not verdict.neutral and not verdict.reproducible:
        lines.append("the script also differs from itself without probes: it seeds itself from the time, or uses operators that are")
        lines.append("not deterministic (torch.use_deterministic_algorithms)")
    if verdict.declared:
        lines.append(f"the plan marks as not neutral: {', '.join(verdict.declared)}")
    return "\n".join(lines)
