"""The text of a run that is followed: for a terminal, or as one line for a log."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import click

from probes.capture_file.closing import event_line, verdicts_in_words
from probes.commands.rendering.table import number, sparkline, table
from probes.printable import counted, one_line
from probes.reader.following.followed_run import RunProgress
from probes.reader.following.followed_series import FollowedSeries
from probes.signature import size

BARS = 32
MOST_LINES = 6  # lines of events, of rules and of missing values
STATES = {
    "waiting": "waiting for the first file of the run",
    "running": "running",
    "elsewhere": "written by a process of another machine",
    "killed": 'its process has ended and journals are not sealed: `probes recover "{run}"`',
    "finished": "finished",
    "empty": "finished; nothing was captured",
    "damaged": "finished, damaged",
}


def progress_text(progress: RunProgress, chosen: Sequence[FollowedSeries], height: int | None = None) -> str:
    """Return everything that is known about a run, in at most `height` lines.

    Args:
        progress: the run.
        chosen: the series to show.
        height: lines of the terminal; None for all.
    """
    state = STATES[progress.state].format(run=progress.run)
    writer = f"  {progress.writer}" if progress.state in ("running", "elsewhere") and progress.writer else ""
    lines = [f"{click.style(one_line(progress.run), bold=True)}  {one_line(state + writer)}"]
    lines += [one_line(_step(step)) for step in progress.steps[:4]]
    lines += [_amount(progress)] if progress.state != "waiting" else []
    lines += [_speed(progress)]
    after = _findings(progress)
    room = None if height is None else max(height - len(lines) - len(after) - 4, 1)
    rows = list(chosen if room is None else chosen[:room])
    if rows:
        lines += ["", *_series_text(rows).split("\n")]
    elif progress.series:
        lines.append("no series matches the patterns of `--series`; `probes ls` lists the series of the run")
    if len(chosen) > len(rows):
        lines.append(f"{len(chosen) - len(rows)} more series; `--series PATTERN` chooses some")
    lines += ["", *after] if after else []
    return "\n".join(lines if height is None else lines[:height])


def progress_line(progress: RunProgress) -> str:
    """Return one line, for a log."""
    step = f"{_step(progress.steps[0])}  " if progress.steps else ""
    return one_line(f"{progress.state}  {step}{_amount(progress)}  {_speed(progress)}")


def _step(step: dict[str, object]) -> str:
    rank = f"rank {step['rank']}  " if step["rank"] else ""
    return f"{rank}epoch {step['epoch']}  {step['phase']} step {step['step']} (global step {step['global_step']})"


def _amount(progress: RunProgress) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(progress.sealed.items()))
    sealed = f"  sealed files: {states}" if states else "  no file sealed yet"
    return f"{counted(progress.captures, 'capture')}  {size(progress.nbytes)}{sealed}"


def _speed(progress: RunProgress) -> str:
    parts = []
    if progress.per_second is not None and progress.bytes_per_second is not None and not progress.is_over:
        parts.append(f"{progress.per_second:.3g} captures/s  {size(round(progress.bytes_per_second))}/s")
    if progress.free is not None:
        parts.append(f"disk: {size(progress.free)} left{_hours(progress)}")
    return "  ".join(parts)


def _hours(progress: RunProgress) -> str:
    """The time until the disk is full, if that is less than a month."""
    if not progress.bytes_per_second or progress.free is None or progress.is_over:
        return ""
    hours = progress.free / progress.bytes_per_second / 3600
    return f" ({hours:.1f} h at this rate)" if hours < 24 * 30 else ""


def _series_text(rows: Sequence[FollowedSeries]) -> str:
    header = ("series", "shape", "number", "last", "last captures")
    return table(header, [_row(one) for one in rows], right=("last",), kept=header[2:])


def _row(one: FollowedSeries) -> list[str]:
    shape = f"[{', '.join(map(str, one.shape))}]" if one.shape else ""
    if not one.numbers:
        return [one_line(one.word), shape, "", "-", "too large to read here"]
    what = one.label or ("mean" if one.shape else "value")
    last = one.numbers[-1]
    shown = number(last)
    marked = shown if isfinite(last) and not one.not_finite else click.style(shown, fg="red")
    bad = f"  {one.not_finite} not finite" if one.not_finite else ""
    return [one_line(one.word), shape, one_line(what), marked, sparkline([*one.numbers][-2 * BARS :], BARS) + bad]


def _findings(progress: RunProgress) -> list[str]:
    """Return lines on problems, events, rules and missing values, of each kind the last ones."""
    ranks = any(one.get("rank") for one in (*progress.events, *progress.steps))
    kinds = (
        [f"cannot be read: {text}" for text in progress.problems],
        [f"event: {event_line(event, ranks=ranks)}" for event in progress.events],
        verdicts_in_words(progress.verdicts),
        [f"missing: {text}" for text in progress.missing],
    )
    lines = []
    for found in kinds:
        if len(found) > MOST_LINES:
            lines.append(f"... {len(found) - MOST_LINES} more; `probes ls` lists all")
        lines += map(one_line, found[-MOST_LINES:])
    return lines
