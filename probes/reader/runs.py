"""Many runs, read together: the same series of each along an axis `run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probes.errors import SeriesNotFound, StorageError
from probes.printable import counted, html_table
from probes.reader.convert import joined_runs
from probes.reader.run import RunReader
from probes.reader.run import open as open_run
from probes.reader.selection import Names, Numbers, Selection
from probes.reader.series import Series
from probes.run_directory.search import run_directories

if TYPE_CHECKING:
    import xarray


def open_all(path: str | Path) -> Runs:
    """Open every run below a directory.

    Args:
        path: a directory of runs, at any depth.

    Returns:
        The runs by their path below the directory.

    Raises:
        StorageError: there is no run.
    """
    root = Path(path)
    found = {str(place.relative_to(root)): open_run(place) for place in sorted(run_directories(root))}
    if not found:
        raise StorageError(f'"{root}" holds no run')
    return Runs(found)


class Runs(Mapping[str, RunReader]):
    """Runs by name."""

    def __init__(self, runs: dict[str, RunReader]) -> None:
        self._runs = runs

    def sel(self, *, phase: Names = None, epoch: Numbers = None, step: Numbers = None, rank: Numbers = None, dtype: Names = None) -> Runs:
        """Every run, restricted to some places of the clock; see `RunReader.sel`."""
        asked = Selection().narrowed(phase=phase, epoch=epoch, step=step, rank=rank, dtype=dtype)._asdict()
        del asked["id"]
        return Runs({name: run.sel(**asked) for name, run in self._runs.items()})

    def series(self, probe: str, target: str, *leaf: str) -> SeriesOfRuns:
        """One series of every run that has it.

        Raises:
            SeriesNotFound: no run has it.
            AmbiguousSeries: several series of a run fit.
        """
        found: dict[str, Series] = {}
        missing: SeriesNotFound | None = None
        for name, run in self._runs.items():
            try:
                found[name] = run[(probe, target, *leaf)]  # type: ignore[index]  # two or three names
            except SeriesNotFound as error:
                if type(error) is not SeriesNotFound:
                    raise
                missing = error
        if not found and missing is not None:
            raise missing
        return SeriesOfRuns(found, self)

    def __getitem__(self, name: Any) -> Any:
        """A run by its name, or with (probe, target) or (probe, target, leaf) one series of every run that has it."""
        return self.series(*name) if isinstance(name, tuple) else self._runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"<Runs: {', '.join(self._runs)}>"

    def _repr_html_(self) -> str:
        return html_table(("run", "epochs"), [(name, len(run.epochs)) for name, run in self._runs.items()], counted(len(self), "run"))


class SeriesOfRuns(Mapping[str, Series]):
    """One series of several runs, by name of the run."""

    def __init__(self, series: dict[str, Series], runs: Mapping[str, RunReader]) -> None:
        self._series = series
        self._runs = runs

    def xarray(self) -> xarray.DataArray:
        """All of them as one array (run, step, *dims), with the runs' tags as coordinates.

        Captures with the same clock share a place on `step`; the place is NaN if a run has no such capture.

        Raises:
            RaggedSeries: the captures differ in shape.
            MissingExtra: xarray is not installed.
        """
        tags = [dict(self._runs[name].manifest.get("tags") or {}) for name in self._series]
        labels = {tag: [str(found.get(tag, "")) for found in tags] for tag in sorted({tag for found in tags for tag in found})}
        captures = {name: (series.numpy(), series.clocks) for name, series in self._series.items()}
        return joined_runs(captures, next(iter(self._series.values())).signature, labels)

    def __getitem__(self, name: str) -> Series:
        return self._series[name]

    def __repr__(self) -> str:
        return f"<SeriesOfRuns {next(iter(self._series.values())).word}: {', '.join(self._series)}>"

    def _repr_html_(self) -> str:
        rows = [(name, series.word, len(series)) for name, series in self._series.items()]
        return html_table(("run", "series", "captures"), rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)
