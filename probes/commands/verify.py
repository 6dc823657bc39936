"""`probes verify`: check a run or a file against its digests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from probes.commands.options.values import RUN_PATH
from probes.commands.rendering.advance_line import LongCommand
from probes.errors import UsageError
from probes.plain_file import write_page
from probes.proof.finding import Verdict
from probes.report.verdict_text import text

if TYPE_CHECKING:
    from probes.proof.anchors.kept import KeptAnchor


@click.command(cls=LongCommand)
@click.argument("path", metavar="RUN|FILE|RUNS", type=RUN_PATH)
@click.option(
    "--anchor",
    metavar="HASH|FILE|git|TRACKER:RUN",
    multiple=True,
    help="Ledger head printed at the end of the run, or where it is kept; detects removed or replaced ledger lines.",
)
@click.option(
    "--signers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Your list of SSH keys (`allowed_signers`); every anchor must be signed by one of them.",
)
@click.option("--sha256", is_flag=True, help="Also compute the SHA-256 of every file.")
@click.option("--replicas", is_flag=True, help="Also compare parameters, gradients in use and optimizer state between ranks.")
@click.option("--untrusted", is_flag=True, help="Read the files in a child process with memory and time limits.")
@click.option("--in-toto", is_flag=True, help="Print an in-toto Statement v1, for signing with another tool.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a page for people: what is proven, by what, and what is not; FILE ends in .html or .md.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def verify(
    context: click.Context,
    path: Path,
    anchor: tuple[str, ...],
    signers: Path | None,
    sha256: bool,
    replicas: bool,
    untrusted: bool,
    in_toto: bool,
    report: Path | None,
    as_json: bool,
) -> None:
    """Check every byte of RUN, FILE or all runs in RUNS against digests, ledger and manifest; exit 1 if one does not verify."""
    if report is not None and report.suffix not in (".html", ".md"):
        raise UsageError(f'`--report` takes a file that ends in `.html` or `.md`, not "{report}"')
    if replicas and untrusted:
        raise UsageError("`--replicas` reads values in this process; leave out `--untrusted`")
    anchors = _anchors(path, anchor, signers)
    verdict = _check(path, tuple(one.head for one in anchors), sha256 or in_toto, untrusted, replicas)
    verdict = replace(verdict, signed_by=tuple(sorted({one.signer for one in anchors if one.signer})))
    if report is not None:
        _write(report, verdict, untrusted)
    if in_toto and verdict.ok:
        from probes.proof.in_toto import statement

        click.echo(json.dumps(statement(verdict), indent=2))
    else:
        click.echo(json.dumps(verdict.as_dict(), indent=2) if as_json else text(verdict))
    if not verdict.ok:
        context.exit(1)


def _write(report: Path, verdict: Verdict, untrusted: bool) -> None:
    from probes.report.page import html, markdown
    from probes.report.proof_page import blocks

    page = blocks(verdict, origin=not untrusted)
    write_page(report, (html if report.suffix == ".html" else markdown)(page))


def _anchors(path: Path, given: tuple[str, ...], signers: Path | None) -> tuple[KeptAnchor, ...]:
    """Return the hashes that were given, and those in the places that were named."""
    if signers is not None and not given:
        raise UsageError("`--signers` is for anchors; name a signed one with `--anchor`")
    if not given:
        return ()
    from probes.proof.anchors.places import found
    from probes.proof.anchors.ssh_signature import Signers

    run = path if path.is_dir() else path.parent
    known = Signers(signers, run) if signers is not None else None
    return tuple(one for place in given for one in found(place, run, Path.cwd(), known))


def _check(path: Path, anchor: tuple[str, ...], sha256: bool, untrusted: bool, replicas: bool) -> Verdict:
    if untrusted:
        from probes.proof.untrusted import verify_untrusted

        return verify_untrusted(path, anchor=anchor, sha256=sha256)
    from probes.proof.verify import verify as check

    return check(path, anchor=anchor, sha256=sha256, replicas=replicas)
