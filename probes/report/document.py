"""A report as one HTML file that opens from disk: it includes texts, data, drawing library and script."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template

from probes import __version__
from probes.errors import ProbesError
from probes.printable import in_html, one_line
from probes.progress.loops import with_progress
from probes.proof.comparison.difference import Difference
from probes.proof.diff import diff
from probes.reader.selection import Numbers, numbers
from probes.report import sections
from probes.report.content import RunContent, read
from probes.report.library import plotly_js
from probes.report.plain_numbers import json_text


def report(paths: Sequence[Path], rank: Numbers = None) -> tuple[str, list[RunContent]]:
    """The page of one run or several, and what it was made of.

    The page has no date of its own, so that the same runs make the same page.

    Args:
        paths: run directories, or files of them.
        rank: ranks whose captures are shown: a number, several, or a slice; by default all. Every rank is verified.

    Raises:
        MissingExtra: the package of the drawing library is not installed.
        StorageError: there is no run at a path.
        SeriesNotFound: a run has no file of one of these ranks.
    """
    library = plotly_js()
    rank = None if rank is None else numbers("rank", rank)  # once, since an iterator is read once
    runs = [read(path, 1 / len(paths), rank) for path in with_progress(paths, "run")]
    difference = _difference(runs, rank) if len(runs) == 2 else None
    data = {"format": "report.v1", "runs": [{"name": one_line(run.name), **run.plots} for run in runs], "partings": _partings(difference)}
    script = _part("report.js")
    page = Template(_part("report.html")).substitute(
        title=in_html(sections.title(paths)),
        policy=f"'sha256-{_hash(script)}' 'sha256-{_hash(library)}'",
        style=_part("report.css"),
        overview=sections.overview(runs),
        findings=sections.findings(runs),
        comparison=sections.comparison(runs, difference),
        modules="".join(map(sections.modules, runs)),
        provenance="".join(map(sections.provenance, runs)),
        version=in_html(__version__),
        library=_packed(library),
        data=_packed(json_text(data)),
        script=script,
    )
    return page, runs


def _difference(runs: Sequence[RunContent], rank: Numbers) -> Difference | None:
    """The difference of two runs, if both can be read."""
    try:
        return diff(runs[0].name, runs[1].name, rank=rank)
    except (ProbesError, OSError) as error:
        runs[1].remarks.append(f"The runs cannot be compared: {error}")
        return None


def _partings(found: Difference | None) -> list[dict[str, object]]:
    """For each series of two runs the first difference, and its size."""
    return [
        {
            "series": one_line(str(one.key)),
            "status": one.status,
            "step": one.first.clock.global_step if one.first else None,
            "phase": one_line(one.key.phase),
            "different": one.different,
            "compared": one.compared,
        }
        for one in (found.series if found else ())
    ]


def _part(name: str) -> str:
    """A file of the page."""
    return files("probes.report").joinpath("template", name).read_text("utf-8")


def _hash(text: str) -> str:
    """The hash of a script for a content security policy."""
    return b64encode(sha256(text.encode()).digest()).decode()


def _packed(text: str) -> str:
    """A text for a script element that the page unpacks itself."""
    return b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
