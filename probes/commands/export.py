"""`probes export`: captures in a file that other tools read."""

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
@click.option("--format", "kind", type=click.Choice(["npz", "jsonl"]), help="By default what the name of the file ends with, else jsonl.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write; jsonl goes to stdout without it.")
@click.option("--manifest", is_flag=True, help="Print the manifest of the run instead of captures.")
@click.option("--epoch", callback=numbers, help="Only these epochs: 3, 0,5 or 10:20.")
@click.option("--step", callback=numbers, help="Only these steps.")
@click.option("--phase", help="Only this phase.")
def export(
    run: Path, series: Sequence[str], kind: str | None, out: Path | None, manifest: bool, epoch: Any, step: Any, phase: str | None
) -> None:
    """Export SERIES of RUN, all of them by default.

    npz holds one array for each series, named as `probes ls` prints it, and its clocks as NAME.clocks; where captures
    differ in their number of rows, they are joined and NAME.row_sizes says how many each has. jsonl holds one capture in
    each line.
    """
    opened = open_run(run).sel(epoch=epoch, step=step, phase=phase)
    if manifest:
        click.echo(json.dumps(dict(opened.manifest), indent=2))
        return
    kind = kind or ("npz" if out is not None and out.suffix == ".npz" else "jsonl")
    if out is None and kind == "npz":
        raise UsageError('npz is not written to a terminal; name the file with "--out captures.npz"')
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
    """A file that takes its name when all of it is written."""
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
            raise UsageError(f"{ragged}; jsonl holds captures of any shape") from ragged
        yield f"{series.word}.row_sizes", series.row_sizes
    yield f"{series.word}.clocks", series.clocks


def _jsonl(stream: IO[bytes], chosen: Sequence[Series]) -> None:
    for series in chosen:
        name = series.key._asdict() | {"dtype": series.dtype}
        for capture in series:
            values = [plain(value) for value in capture.value.reshape(-1).tolist()]
            line = name | capture.clock._asdict() | {"shape": capture.value.shape, "values": values}
            stream.write(json.dumps(line, allow_nan=False).encode() + b"\n")
