"""`probes export`: write captures as npz or jsonl."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from probes.commands.rendering.numbers import numbers
from probes.commands.show import plain
from probes.errors import RaggedSeries, UsageError
from probes.reader.run import open as open_run
from probes.reader.series import Series


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("series", nargs=-1)
@click.option("--format", "kind", type=click.Choice(["npz", "jsonl"]), help="Output format; default: the suffix of --out, else jsonl.")
@click.option("--out", type=click.Path(path_type=Path), help="File to write; without it, jsonl goes to stdout.")
@click.option("--manifest", is_flag=True, help="Print the manifest of the run instead.")
@click.option("--epoch", callback=numbers, help="Select epochs: 3 or 0,5 or 10:20.")
@click.option("--step", callback=numbers, help="Select steps.")
@click.option("--phase", help="Select a phase.")
def export(
    run: Path, series: Sequence[str], kind: str | None, out: Path | None, manifest: bool, epoch: Any, step: Any, phase: str | None
) -> None:
    """Export SERIES of RUN; default: all series.

    npz holds one array per series, named as in `probes ls`, and its clocks as NAME.clocks. If captures differ in their
    number of rows, the rows are concatenated and NAME.row_sizes holds the number of rows of each capture. jsonl holds
    one capture per line.
    """
    opened = open_run(run).sel(epoch=epoch, step=step, phase=phase)
    if manifest:
        click.echo(json.dumps(dict(opened.manifest), indent=2))
        return
    kind = kind or ("npz" if out is not None and out.suffix == ".npz" else "jsonl")
    if out is None and kind == "npz":
        raise UsageError("npz cannot go to a terminal; name a file with `--out captures.npz`")
    chosen = [opened.find(word) for word in series] if series else [one for every in opened.series for one in every.by_dtype()]
    write: Callable[[IO[bytes], Sequence[Series]], None] = {"npz": _npz, "jsonl": _jsonl}[kind]
    if out is None:
        write(sys.stdout.buffer, chosen)
        return
    with _replacing(out) as stream:
        write(stream, chosen)
    click.echo(f"{len(chosen)} series -> {out}", err=True)


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed once it is complete."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _npz(stream: IO[bytes], chosen: Sequence[Series]) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        for series in chosen:
            for name, array in _arrays(series):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


def _arrays(series: Series) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    shape = series.signature.shape
    if shape is not None and None not in shape:
        yield series.word, series.numpy()
    else:
        try:
            yield series.word, series.rows()
        except RaggedSeries as ragged:
            raise UsageError(f"{ragged}; `--format jsonl` exports captures of any shape") from ragged
        yield f"{series.word}.row_sizes", series.row_sizes
    yield f"{series.word}.clocks", series.clocks


def _jsonl(stream: IO[bytes], chosen: Sequence[Series]) -> None:
    for series in chosen:
        name = series.key._asdict() | {"dtype": series.dtype}
        for capture in series:
            values = [plain(value) for value in capture.value.reshape(-1).tolist()]
            line = name | capture.clock._asdict() | {"shape": capture.value.shape, "values": values}
            stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
