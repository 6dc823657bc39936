"""Pictures of captures in files."""

from __future__ import annotations

from pathlib import Path

from probes.errors import UsageError
from probes.optional_package import import_optional
from probes.reader.run import RunReader
from probes.reader.series_index import is_pattern

SUFFIXES = (".png", ".svg", ".pdf")


def draw(run: RunReader, word: str, path: Path) -> None:
    """Draw a series, or all series that a pattern matches, into a file; no display is needed.

    Raises:
        UsageError: the suffix of the file is that of no picture.
        SeriesNotFound: no series fits.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f'"{path.name}" is not the name of a picture; the suffix is one of {", ".join(SUFFIXES)}')
    figure = import_optional("matplotlib.figure", "plot", "`--plot`").Figure(figsize=(9, 5), layout="constrained")
    if is_pattern(word) and word not in {one.word for one in run.series}:
        run.plot(word, figure.subplots())
    else:
        run.find(word).plot(figure.subplots())
    figure.savefig(path, dpi=150)
