"""`probes show`: show one series as numbers and a sparkline."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from probes.commands.options.values import RUN_PATH, numbers, once
from probes.commands.rendering.advance_line import LongCommand
from probes.commands.rendering.layers_text import SORTS, in_order, layers_data, layers_text
from probes.commands.rendering.table import number, sparkline, table
from probes.errors import UsageError
from probes.optional_package import import_optional
from probes.printable import counted, one_line, spans
from probes.progress.loops import with_progress
from probes.reader.export.jsonl_file import plain
from probes.reader.run import RunReader
from probes.reader.run import open as open_run
from probes.reader.series import Series
from probes.reader.series_index import is_pattern
from probes.reader.series_summary import CaptureSummary, SeriesSummary, figures, layer_figures, summarize
from probes.signature import size
from probes.transforms.kernels.moments import Moments

LISTED = 20  # captures
FEW = 12  # values of a capture that are printed as they are
CLOCK = ("epoch", "step", "microstep", "call", "backward", "rank")
PICTURES = (".png", ".svg", ".pdf")


@click.command(cls=LongCommand)
@click.argument("run", type=RUN_PATH)
@click.argument("series", required=False, metavar="SERIES")
@click.option("--epoch", multiple=True, callback=numbers, help="Select epochs: 3 or 0,5 or 10:20.")
@click.option("--step", multiple=True, callback=numbers, help="Select steps: 3 or 0,5 or 10:20.")
@click.option("--phase", multiple=True, callback=once, help="Select a phase.")
@click.option("--rank", multiple=True, callback=numbers, help="Select ranks: 3 or 0,5 or 10:20.")
@click.option("--limit", type=click.IntRange(min=0), help="Number of captures to list; default: 20.")
@click.option("--sort", type=click.Choice(SORTS), help="Order of the rows of a pattern; default: name.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), help="Draw a picture into FILE (.png, .svg, .pdf) instead.", metavar="FILE"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(
    run: Path,
    series: str | None,
    epoch: Any,
    step: Any,
    phase: str | None,
    rank: Any,
    limit: int | None,
    sort: str | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Show the captures of SERIES in RUN; SERIES is a name from `probes ls`.

    A pattern such as 'gradnorm/encoder.**' shows a row for each series that it matches: the mean of the last capture, min, max, NaN,
    and the mean over time. `--sort max` begins with the series that has the largest number; `--plot` draws a heat map of layers over
    steps. Put a pattern in quotes.
    """
    if series is None:
        place = shlex.quote(str(run))
        raise UsageError(f"name a series: `probes ls {place}` lists them, and `probes show {place} '**'` has a row for each")
    options = {"--limit": limit, "--sort": sort, "--json": as_json or None}
    given = [name for name, value in options.items() if value is not None]
    if picture is not None and given:
        raise UsageError(f"`--plot` draws a picture and prints nothing; leave out `{given[0]}`")
    selected = open_run(run).sel(epoch=epoch, step=step, phase=phase, rank=rank)
    if picture is not None:
        _draw(selected, series, picture)
        click.echo(f"picture -> {picture}", err=True)
        return
    remarks = [one_line(sentence) for sentence in selected.not_shown]
    if is_pattern(series) and series not in {one.word for one in selected.series}:
        if limit is not None:
            raise UsageError(f"`--limit` is for the captures of one series, and `{series}` is a pattern with a row for each series")
        rows = in_order([layer_figures(each) for each in with_progress(selected.match(series).by_dtype(), "series")], sort or "name")
        click.echo(json.dumps(layers_data(rows), indent=2) if as_json else "\n".join([*remarks, layers_text(rows)]))
        return
    if sort is not None:
        raise UsageError(
            f"`--sort {sort}` orders the rows of a pattern, and `{series}` is the name of one series; write for example '{series}/**'"
        )
    found = selected.find(series)
    (summary,) = (
        summarize(one, LISTED if limit is None else limit, FEW, keep=bool(_labels(one))) for one in with_progress([found], "series")
    )
    click.echo(json.dumps(_data(found, summary), indent=2) if as_json else _text(found, summary, remarks))


def _draw(run: RunReader, word: str, path: Path) -> None:
    """Draw a series, or all series that a pattern matches, into a file; no display is needed.

    Raises:
        UsageError: the suffix of the file is that of no picture.
        SeriesNotFound: no series fits.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in PICTURES:
        raise UsageError(f'"{path.name}" is not the name of a picture; the suffix is one of {", ".join(PICTURES)}')
    figure = import_optional("matplotlib.figure", "plot", "`--plot`").Figure(figsize=(9, 5), layout="constrained")
    if is_pattern(word) and word not in {one.word for one in run.series}:
        run.plot(word, figure.subplots())
    else:
        run.find(word).plot(figure.subplots())
    figure.savefig(path, dpi=150)


def _data(series: Series, summary: SeriesSummary) -> dict[str, Any]:
    labels = _labels(series)
    return {
        "series": series.word,
        **series.key._asdict(),
        "dtype": series.dtype,
        "shape": series.signature.shape,
        "dims": series.signature.dims,
        "captures": len(series),
        "bytes": series.nbytes,
        "attrs": series.attrs,
        "labels": labels,
        "loss_scale": series.loss_scale.tolist() if (series.loss_scale != 1).any() else None,
        "figures": _figures(summary.total),
        "rows": [_row_data(row) for row in summary.rows],
    }


def _row_data(row: CaptureSummary) -> dict[str, Any]:
    values = None if row.values is None else [plain(value) for value in row.values]
    return {**row.clock._asdict(), "shape": row.shape, **_figures(row.moments), "values": values}


def _figures(moments: Moments) -> dict[str, Any]:
    return {name: plain(value) for name, value in figures(moments).items()}


def _text(series: Series, summary: SeriesSummary, remarks: Sequence[str]) -> str:
    clocks = series.clocks
    epochs, steps = (sorted(set(clocks[name].tolist())) for name in ("epoch", "step"))
    where = f"epochs {spans(epochs)}, steps {steps[0]} to {steps[-1]}"
    lines = [
        click.style(one_line(series.word), bold=True),
        f"{one_line(str(series.signature))}  {counted(len(series), 'capture')}, {where}  {size(series.nbytes)}",
        *remarks,
    ]
    if series.attrs:
        lines.append(one_line("  ".join(f"{name}: {_short(value)}" for name, value in series.attrs.items())))
    if (series.loss_scale != 1).any():
        low, high = series.loss_scale.min(), series.loss_scale.max()
        scales = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        lines.append(f"loss scale: {scales}; these are the scaled gradients, `.unscaled()` of the reader divides by it")
    if not summary.values:
        lines += ["", "  ".join(f"{name} {number(value)}" for name, value in figures(summary.total).items())]
    if len(summary.means) > 1:
        lines += _lines(series, summary)
    return "\n".join([*lines, "", _rows_text(series, summary)]) if summary.rows else "\n".join(lines)


def _lines(series: Series, summary: SeriesSummary) -> list[str]:
    """Return a sparkline of the mean over steps, or one for each labelled value."""
    if not summary.values:
        return [_line("mean", summary.means)]
    labels = _labels(series)
    width = max(map(len, labels))
    return ["", *(_line(label.ljust(width), list(column)) for label, column in zip(labels, zip(*summary.values, strict=True), strict=True))]


def _line(name: str, values: Sequence[float]) -> str:
    return f"{name}  {sparkline(values)}  {number(values[0])} .. {number(values[-1])}"


def _rows_text(series: Series, summary: SeriesSummary) -> str:
    varying = [name for name in CLOCK if len(set(series.clocks[name].tolist())) > 1 or name in ("epoch", "step")]
    labels = _labels(series)
    header, rows = [*varying], [[str(getattr(row.clock, name)) for name in varying] for row in summary.rows]
    if series.signature.shape is None or None in series.signature.shape:
        header.append("shape")
        rows = [[*cells, "x".join(map(str, row.shape))] for cells, row in zip(rows, summary.rows, strict=True)]
    if labels or all(row.values is not None and len(row.values) <= 1 for row in summary.rows):
        header += labels or ["value"]
        rows = [[*cells, *map(number, row.values or ["-"])] for cells, row in zip(rows, summary.rows, strict=True)]
    else:
        names = list(figures(summary.rows[0].moments))
        header += names
        rows = [[*cells, *map(number, figures(row.moments).values())] for cells, row in zip(rows, summary.rows, strict=True)]
    text = table(header, rows, right=header)
    left_out = len(series) - len(rows)
    return text if not left_out else _with_gap(text, len(rows), left_out)


def _with_gap(text: str, shown: int, left_out: int) -> str:
    lines = text.split("\n")
    cut = 1 + shown - shown // 2
    return "\n".join([*lines[:cut], f"... {left_out} more; `--limit {shown + left_out}` lists all", *lines[cut:]])


def _labels(series: Series) -> list[str]:
    """Return the labels of a one-axis capture, such as the statistics of `stats`; empty if it has none."""
    signature = series.signature
    if signature.shape is None or len(signature.shape) != 1 or len(signature.coords) != 1:
        return []
    (labels,) = signature.coords.values()
    return [one_line(number(label)) for label in labels] if signature.shape == (len(labels),) and len(labels) <= FEW else []


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
