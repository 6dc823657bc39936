"""Series by probe, target and leaf, in whichever files their captures are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast, overload

from probes.capture_file.series_name import Word, parse_word
from probes.clock import SeriesKey
from probes.errors import AmbiguousSeries, SeriesNotFound, UsageError, nearest
from probes.module_glob import GlobError, ModuleGlob
from probes.printable import one_line
from probes.reader.lazy_part import LazyPart
from probes.reader.selection import Names, Selection

if TYPE_CHECKING:  # NumPy, which takes longer to import than a list of a run takes
    from probes.reader.frame import Package
    from probes.reader.series import Series
    from probes.reader.series_set import SeriesList, SeriesSet

WORDS = {"target": "module or parameter", "leaf": "value", "phase": "phase"}
MOST_LISTED = 20


class SeriesIndex:
    """Finds series by their names.

    Args:
        selection: which captures are meant.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def sel(self, *, phase: Names = None, dtype: Names = None) -> Self:
        """The same series, restricted to some phases and dtypes."""
        raise NotImplementedError

    @property
    def _keys(self) -> Mapping[SeriesKey, Sequence[LazyPart]]:
        """Every selected series, and its parts."""
        raise NotImplementedError

    @property
    def _scales(self) -> Mapping[tuple[str, str], Sequence[LazyPart]]:
        """The series of loss scales by probe and phase."""
        raise NotImplementedError

    @property
    def about(self) -> Mapping[str, str]:
        """The description of the run for files of other tools."""
        return {}

    @property
    def probes(self) -> list[str]:
        """Names of the probes that captured something."""
        return sorted({key.probe for key in self._keys})

    @property
    def series(self) -> SeriesList:
        """Every series, sorted by name, as a list; none is read yet."""
        from probes.reader.series_set import SeriesList

        return SeriesList(self._series([key]) for key in self._keys)

    @overload
    def __getitem__(self, name: str) -> dict[str, tuple[str, ...]]: ...
    @overload
    def __getitem__(self, name: tuple[str, str] | tuple[str, str, str]) -> Series: ...
    def __getitem__(self, name: str | tuple[str, ...]) -> Series | SeriesSet | dict[str, tuple[str, ...]]:
        """The leaves of a probe by target, or the series of a (probe, target) or (probe, target, leaf).

        A pattern such as `encoder.*` for the target or the leaf gives the `SeriesSet` that `match` gives; type checkers know it from there.

        Raises:
            SeriesNotFound: no series fits.
            AmbiguousSeries: several series fit; the message lists them.
            UsageError: the name is of another type.
        """
        if isinstance(name, str):
            return self._targets(name)
        if not isinstance(name, tuple) or len(name) not in (2, 3) or not all(isinstance(word, str) for word in name):
            forms = '`["PROBE", "TARGET"]` or `["PROBE", "TARGET", "LEAF"]`'
            raise UsageError(
                f"a series is named by texts, {forms}; got {name!r}; select a phase, epoch or rank by `.sel(phase=...)` before"
            )
        probe, target, *leaf = name
        known = self._targets(probe)
        is_exact = target in known and {*leaf} <= {*known[target]}
        if not is_exact and any(map(is_pattern, (target, *leaf))):
            return self._matching(Word(probe, target, leaf[0] if leaf else None, None, None))
        return self._one(probe, target, *leaf)

    def __iter__(self) -> Iterator[str]:
        """The names of the probes, as the keys of a mapping."""
        return iter(self.probes)

    def __contains__(self, name: object) -> bool:
        """Whether `run[name]` finds something: one series, or several that fit."""
        try:
            self[cast("str", name)]
        except AmbiguousSeries:
            return True
        except (SeriesNotFound, UsageError):
            return False
        return True

    def find(self, word: str) -> Series:
        """The series that a person means by `probe[/target[:leaf]][@phase][~dtype]`.

        Raises:
            SeriesNotFound: no series fits.
            AmbiguousSeries: several series fit; the message lists them.
        """
        meant = parse_word(word)
        exact = {str(key): key for key in self._keys}
        if word in exact:
            return self._series([exact[word]])
        name, mark, dtype = word.rpartition("~") if "~" in word else (word, "", "")
        found = self._series([exact[name]]) if name in exact else self.sel(phase=meant.phase)._one(meant.probe, meant.target, meant.leaf)
        return _of_dtype(found, dtype) if mark else found

    def match(self, word: str) -> SeriesSet:
        """The series that a pattern `probe[/target[:leaf]][@phase][~dtype]` matches, such as `gradnorm/encoder.*`.

        Each part is a pattern as in a spec: `*` within a level, `**` any levels, `{a,b}`. A part that is left out matches everything.

        Raises:
            SeriesNotFound: no series fits.
            UsageError: a part is not a pattern.
        """
        meant = parse_word(word)
        return self.sel(phase=meant.phase, dtype=meant.dtype)._matching(meant)

    def frame(self, word: str = "**", package: Package | None = None) -> Any:
        """The captures of all series that a pattern matches as a long table, one row for each number; see `SeriesSet.frame`.

        Args:
            word: a probe, or a pattern as for `match`.
            package: `pandas`, `polars` or `pyarrow`; by default the first of them that is installed.

        Raises:
            SeriesNotFound: no series fits.
            MissingExtra: none of the packages is installed.
        """
        return self.match(word).frame(package)

    def export(self, path: str | Path, word: str = "**", *, format: str | None = None, wide: bool = False) -> None:  # noqa: A002  # as in the command
        """Write the captures of all series that a pattern matches to a file of another tool; see `SeriesSet.export`.

        Args:
            path: the file: `.parquet`, `.arrow`, `.npz`, `.safetensors` or `.jsonl`.
            word: a probe, or a pattern as for `match`.
            format: the format, if the suffix does not name it.
            wide: of `parquet` and `arrow`: one row for each place of the clock.

        Raises:
            SeriesNotFound: no series fits.
            MissingExtra: the format needs a package that is not installed.
            UsageError: the format is not known, or cannot hold the captures.
        """
        self.match(word).export(path, format=format, wide=wide)

    def plot(self, word: str = "**", ax: Any = None, label: str | None = None) -> Any:
        """Draw all series that a pattern matches: a heat map of layers over steps; see `SeriesSet.plot`.

        Args:
            word: a probe, or a pattern as for `match`.
            ax: axes of matplotlib; by default those of a new figure.
            label: which number of a capture, such as `std` of `stats`.

        Returns:
            The axes.

        Raises:
            SeriesNotFound: no series fits.
            MissingExtra: matplotlib is not installed.
        """
        return self.match(word).plot(ax, label)

    def _require_captures(self) -> None:
        """Require that a selection has a capture.

        Raises:
            SeriesNotFound: it has none.
        """
        if not self._keys and self._selection.words:
            raise SeriesNotFound(f"the run has no capture in this selection ({self._selection.words}); `probes ls` without it lists all")

    def _matching(self, meant: Word) -> SeriesSet:
        from probes.reader.series_set import SeriesSet

        self._require_captures()
        fits = _fits(meant)
        found = [key for key in self._keys if fits(key)]
        if not found:
            leaf = "" if meant.leaf is None else f":{meant.leaf}"
            raise SeriesNotFound(
                f"no series matches `{meant.probe}/{meant.target or '**'}{leaf}`; {_known([str(key) for key in self._keys])}"
            )
        every = [self._series([key]) for key in found]
        chosen = every if self._selection.dtype is None else [one for one in every if one.has_dtype]
        if not chosen:
            raise SeriesNotFound(f"no series that matches `{meant.probe}/{meant.target or '**'}` has this dtype; {every[0].extent}")
        return SeriesSet(chosen, self.about)

    def _targets(self, probe: str) -> dict[str, tuple[str, ...]]:
        leaves: dict[str, dict[str, None]] = {}
        for key in self._keys:
            if key.probe == probe:
                leaves.setdefault(key.target, {})[key.leaf] = None
        if not leaves:
            self._require_captures()
            raise SeriesNotFound(f"no probe is called `{probe}`; {nearest(probe, self.probes) or _known(self.probes)}")
        return {target: tuple(found) for target, found in leaves.items()}

    def _one(self, probe: str, target: str | None = None, leaf: str | None = None) -> Series:
        targets = self._targets(probe)
        if target is not None and target not in targets:
            raise SeriesNotFound(f"`{probe}` captured nothing of `{target}`; {nearest(target, targets) or _known(list(targets))}")
        leaves = [known for at, found in targets.items() if target in (None, at) for known in found]
        if leaf is not None and leaf not in leaves:
            raise SeriesNotFound(f"`{probe}/{target}` has no `{leaf}`; {nearest(leaf, leaves) or _known(leaves)}")
        return self._series([key for key in self._keys if key.probe == probe and target in (None, key.target) and leaf in (None, key.leaf)])

    def _series(self, keys: list[SeriesKey]) -> Series:
        from probes.reader.series import Series

        if len(keys) > 1:
            raise AmbiguousSeries(_choice(keys))
        key = keys[0]
        return Series(key, self._keys[key], self._selection, self._scales.get((key.probe, key.phase), ()))


def _of_dtype(series: Series, dtype: str) -> Series:
    """The captures of a series of one dtype, by its name in a word.

    Raises:
        SeriesNotFound: no capture has it.
    """
    if dtype not in (known := series.stored_dtypes):
        raise SeriesNotFound(f"`{series.key}` has no capture of the dtype `{dtype}`; {nearest(dtype, known) or _known(known)}")
    return series.sel(dtype=dtype)


def _choice(keys: Sequence[SeriesKey]) -> str:
    """The difference of several series with the same name, how to choose one, and their names."""
    differs = {name: sorted({getattr(key, name) for key in keys}) for name in WORDS}
    apart = [name for name, found in differs.items() if len(found) > 1]
    advice = ["give the name of one"]
    if "phase" in apart:
        phase = differs["phase"][0]
        advice.append(f'{"choose" if apart == ["phase"] else "narrow by"} a phase (`--phase {phase}`, `.sel(phase="{phase}")`)')
    if "target" in apart:
        advice.append(f"take all with the pattern `{keys[0].probe}/**`")
    listed = [f"  {one_line(str(key))}" for key in keys[:MOST_LISTED]] + (
        [f"  ... and {len(keys) - MOST_LISTED} more"] if len(keys) > MOST_LISTED else []
    )
    differing = " and ".join(WORDS[name] for name in apart)
    return "\n".join([f"{len(keys)} series fit; they differ in {differing}: {', or '.join(advice)}", *listed])


def is_pattern(text: str) -> bool:
    """Whether a text has a character that selects several names."""
    return any(mark in text for mark in "*?{")


def key_pattern(word: str) -> Callable[[SeriesKey], bool]:
    """Whether a series is one that a pattern `probe[/target[:leaf]][@phase]` matches; see `SeriesIndex.match`.

    Raises:
        UsageError: a part is not a pattern.
    """
    meant = parse_word(word)
    fits = _fits(meant)
    return lambda key: meant.phase in (None, key.phase) and fits(key)


def _fits(meant: Word) -> Callable[[SeriesKey], bool]:
    """Whether a series has the names that a word means, whatever its phase."""
    probe, target, leaf = (_pattern(part) for part in (meant.probe, meant.target, meant.leaf))
    return lambda key: probe(key.probe) and target(key.target) and leaf(key.leaf)


def _pattern(text: str | None) -> Callable[[str], bool]:
    """Whether a name matches a part of a word; a part that is left out, and `**`, match every name, also that of the root."""
    if text in (None, "**"):
        return lambda name: True
    try:
        glob = ModuleGlob(str(text))
    except GlobError as error:
        raise UsageError(f"`{text}` is not a pattern: {error}") from None
    return lambda name: name == text or glob.matches(name)


def _known(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:5])
    return f"there is {shown}" + (f" and {len(names) - 5} more" if len(names) > 5 else "") if names else "nothing was captured"
