"""`probes export`: write captures as files of other tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from probes.commands.options.values import RUN_PATH, numbers, once
from probes.commands.rendering.advance_line import LongCommand
from probes.errors import UsageError
from probes.reader.export.file import FORMATS, SUFFIXES, write
from probes.reader.run import RunReader
from probes.reader.run import open as open_run
from probes.reader.series_index import is_pattern
from probes.reader.series_set import SeriesSet


@click.command(cls=LongCommand)
@click.argument("run", type=RUN_PATH)
@click.argument("series", nargs=-1)
@click.option("--format", "kind", type=click.Choice(sorted(FORMATS)), help="Output format; default: the suffix of --out, else jsonl.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write; without it, or with -, jsonl goes to stdout.")
@click.option("--wide", is_flag=True, help="Write a row for each step and a column for each number (parquet, arrow).")
@click.option("--manifest", is_flag=True, help="Print the manifest of the run instead.")
@click.option("--epoch", multiple=True, callback=numbers, help="Select epochs: 3 or 0,5 or 10:20.")
@click.option("--step", multiple=True, callback=numbers, help="Select steps: 3 or 0,5 or 10:20.")
@click.option("--phase", multiple=True, callback=once, help="Select a phase.")
@click.option("--rank", multiple=True, callback=numbers, help="Select ranks: 3 or 0,5 or 10:20.")
def export(
    run: Path,
    series: Sequence[str],
    kind: str | None,
    out: Path | None,
    wide: bool,
    manifest: bool,
    epoch: Any,
    step: Any,
    phase: str | None,
    rank: Any,
) -> None:
    """Export SERIES of RUN; default: all series. SERIES is a name from `probes ls`, or a pattern such as 'gradnorm/encoder.**'.

    parquet and arrow (Feather) hold a table for pandas, polars or DuckDB with one row for each number: its series, its place in
    the run, its index or label, and the value. With `--wide` there is one row for each step, and one column for each number.

    npz holds one array per series, named as in `probes ls`, and its clocks as NAME.clocks. If captures differ in their
    number of rows, the rows are concatenated and NAME.row_sizes holds the number of rows of each capture. safetensors holds the
    same with the exact dtypes, such as bfloat16. zarr is a folder of chunks with one group per series. jsonl holds one capture per line.
    """
    options = {"SERIES": series or None, "--format": kind, "--out": out, "--wide": wide or None}
    options |= {"--epoch": epoch, "--step": step, "--phase": phase, "--rank": rank}
    given = [name for name, value in options.items() if value is not None]
    if manifest:
        if given:
            raise UsageError(f"`--manifest` prints the manifest of the run instead of captures; leave out `{given[0]}`")
        click.echo(json.dumps(dict(open_run(run).manifest), indent=2))
        return
    opened = open_run(run).sel(epoch=epoch, step=step, phase=phase, rank=rank)
    out = None if out == Path("-") else out
    if kind is None and out is not None and out.suffix and out.suffix not in SUFFIXES:
        raise UsageError(f'"{out}" names no format; give `--format`, or one of the suffixes {", ".join(sorted(SUFFIXES))}')
    kind = kind or (SUFFIXES.get(out.suffix, "jsonl") if out is not None else "jsonl")
    if out is None and kind != "jsonl":
        raise UsageError(f"{kind} cannot go to a terminal; name a file with `--out captures.{kind}`")
    selects = {*given} - {"--format", "--out", "--wide"}
    chosen = SeriesSet([]) if not selects and not opened.series else _chosen(opened, series or ("**",))
    if out is None:
        write(sys.stdout.buffer, chosen.by_dtype(), kind, wide=wide)
        return
    chosen.export(out, format=kind, wide=wide)
    click.echo(f"{len(chosen.by_dtype())} series -> {out}", err=True)


def _chosen(run: RunReader, words: Sequence[str]) -> SeriesSet:
    """Return the series that the words name, each once.

    Raises:
        SeriesNotFound: a word names no series with a capture.
    """
    exact = {one.word for one in run.series}
    found = [run.match(word) if is_pattern(word) and word not in exact else SeriesSet([run.find(word)]) for word in words]
    for one in found:
        one.by_dtype()  # an error if it has no capture in the selection
    return SeriesSet(list({one.word: one for several in found for one in several}.values()), run.about)
