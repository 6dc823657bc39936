"""Comparison of two runs capture by capture, in memory that does not grow with the files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probes.clock import SeriesKey
from probes.errors import FileRefused, UsageError
from probes.plain_file import plain_json
from probes.progress.loops import with_progress
from probes.proof.comparison.alignment import align
from probes.proof.comparison.compare import ToleranceBounds
from probes.proof.comparison.compared_run import ComparedRun
from probes.proof.comparison.difference import Difference, GapDifference, SeriesDifference, WeightsDifference
from probes.proof.comparison.epoch_weights import weights_differences
from probes.proof.comparison.execution_order import ExecutionOrder
from probes.proof.comparison.joined_run import joined
from probes.proof.comparison.mapping import parse_mappings
from probes.proof.comparison.merged_run import MergedRun
from probes.proof.comparison.pairing import PlanOrder, Rename, is_parallel, pair, renamed, without_wrappers
from probes.proof.comparison.provenance_diff import provenance_differences
from probes.reader.selection import Numbers, Selection
from probes.run_directory.launch.whole_weights import WholeTensor, epoch_tables, first_manifests, whole_tensors
from probes.run_directory.listing import Directory
from probes.run_directory.search import meant_run

Tolerances = Mapping[str, ToleranceBounds]
Gaps = Counter[tuple[int, SeriesKey, str]]  # how many captures an epoch lacks, by series and reason


def diff(
    a: str | Path,
    b: str | Path,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    mapping: Sequence[str] = (),
    bitwise: bool = False,
    by_digest: bool = False,
    concat: str = "",
    rank: Numbers = None,
) -> Difference:
    """Compare two runs, or two files, by series and clock.

    Args:
        a: the first: a run directory, a directory of runs (then its newest one), or one file.
        b: the second, likewise.
        rtol: tolerance relative to the first, for every dtype; the spec's tolerances are then left aside.
        atol: absolute tolerance, likewise.
        mapping: `OLD=NEW` module paths, or `path:leaf`, of the first and the second; `A+B` on one side for modules that are one in the
            other run, with `[dim=1,groups=12]`; `@FILE` for the lines of a file.
        bitwise: compare bit for bit, whatever tolerances the spec names.
        by_digest: take captures as equal where the digests that the files state agree, without reading the values; only `verify`
            checks that the digests are true.
        concat: `batch` joins the values of a batch over ranks, if the runs have another number of ranks, or lie on them in another way.
        rank: ranks to compare: a number, several, or a slice; by default all.

    Returns:
        What differs; nothing is printed.

    Raises:
        UsageError: tolerances and `bitwise` exclude each other, a tolerance is not finite, or a renaming applies to nothing.
        SeriesNotFound: a run has no file of one of the ranks.
        StorageError: there is no run.
        FileRefused: a file holds what a capture file never holds.
    """
    if bitwise and (rtol is not None or atol is not None):
        raise UsageError("`bitwise` and a tolerance exclude each other; give one of them")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"`{name}` must be a finite number of at least 0; got `{value}`")
    chosen = Selection().narrowed(rank=rank)
    left, right = _directory(a, chosen), _directory(b, chosen)
    tolerances = {} if bitwise else _tolerances(left, rtol, atol)
    order = PlanOrder(left.manifest)
    sides = _sides(left, right, concat)
    renames, fusions = parse_mappings(mapping)
    ours, theirs = joined(sides, fusions, [_transforms(left), _transforms(right)])
    found = dict(_compare(ours, theirs, renames, tolerances, order, by_digest))
    series = tuple(found[key] for key in sorted(found, key=lambda named: (order.series(named[0]), named[1])))
    firsts = [one.first for one in series if one.first is not None]
    return Difference(
        a=str(a),
        b=str(b),
        series=series,
        first=min(firsts, key=ExecutionOrder(left, order).place, default=None),
        gaps=_gaps(_lacking(left, ours), _lacking(right, theirs), renames),
        origins=provenance_differences(_as_it_ran(left), _as_it_ran(right), (_weights(left), _weights(right))),
        tolerances={dtype: one._asdict() for dtype, one in tolerances.items()},
        weights=_epoch_weights(left, right),
    )


def _directory(path: str | Path, chosen: Selection) -> Directory:
    """A run, restricted to the selected ranks, of which it must have files."""
    place = meant_run(path)
    if chosen != Selection():
        chosen.require_places(f'"{path}"', ((one.epoch, one.rank) for one in Directory(place).current))
    return Directory(place, has_file=chosen.has_file)


def _sides(left: Directory, right: Directory, concat: str) -> tuple[ComparedRun, ComparedRun]:
    """The runs rank by rank, or with merged ranks if their numbers of ranks differ."""
    if concat not in ("", "batch"):
        raise UsageError(f'`concat` is "batch" or nothing, not `{concat}`')
    if _world(left) == _world(right) and not concat:
        return ComparedRun(left), ComparedRun(right)
    return MergedRun(left, _transforms(left), concat=bool(concat)), MergedRun(right, _transforms(right), concat=bool(concat))


def _world(side: Directory) -> object:
    """The number of processes of a run, from its manifest; missing files of a rank do not change it."""
    environment = side.manifest.get("environment")
    return environment.get("world") if isinstance(environment, dict) else None


def _tolerances(side: Directory, rtol: float | None, atol: float | None) -> dict[str, ToleranceBounds]:
    """Tolerances by dtype; `*` means every dtype."""
    if rtol is not None or atol is not None:
        return {"*": ToleranceBounds(rtol or 0.0, atol or 0.0)}
    named = _resolved(side).get("tolerance") or {}
    try:
        found = {dtype: ToleranceBounds(float(one.get("rtol", 0.0)), float(one.get("atol", 0.0))) for dtype, one in named.items()}
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FileRefused("spec-edited", f'the tolerances in the spec of "{side.path}" are not numbers by dtype') from error
    if not all(0 <= bound < math.inf for one in found.values() for bound in one):  # with NaN or infinity all values would be equal
        raise FileRefused("spec-edited", f'a tolerance in the spec of "{side.path}" is not a finite number of at least 0')
    return found


def _resolved(side: Directory) -> dict[str, Any]:
    """The resolved spec of a run; empty if its files have none."""
    for entry in side.current:
        if not entry.sealed:
            continue
        document = side.file(entry.name).document("resolved")
        found = plain_json(document) if isinstance(document, str) else document
        return found if isinstance(found, dict) else {}
    return {}


def _transforms(side: Directory) -> Callable[[str], Sequence[Mapping[str, Any]]]:
    """The transforms of a probe in the resolved spec of a run; axes named in `dims` of the probe are numbers."""
    probes = _resolved(side).get("probes")

    def of(probe: str) -> Sequence[Mapping[str, Any]]:
        about = probes.get(probe) if isinstance(probes, dict) else None
        found = about.get("transforms") if isinstance(about, dict) else None
        names = {name: axis for axis, name in enumerate(about.get("dims") or ())} if isinstance(about, dict) else {}
        listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        return [{**one, "dims": [names.get(dim, dim) for dim in one["dims"]]} if one.get("dims") else one for one in listed]

    return of


def _as_it_ran(side: Directory) -> dict[str, Any]:
    """The manifest of a run, with the environment of its first step, modules that were imported later, and its loaders."""
    manifest = dict(side.manifest)
    first, last = (_closing(side, at) for at in (0, -1))
    looks, stated = first.get("environment"), manifest.get("environment")
    changed = looks.get("first_step") if isinstance(looks, dict) else None
    if isinstance(changed, dict) and isinstance(stated, dict):
        manifest["environment"] = {**stated, **changed}
    imported, code = last.get("imported"), manifest.get("code")
    if isinstance(imported, dict) and isinstance(code, dict) and code.get("modules") is not None:
        later = [{"name": name, "sha256": str(digest)} for name, digest in imported.items()]
        manifest["code"] = {**code, "modules": [*code["modules"], *later]}
    if isinstance(last.get("loaders"), list):
        manifest["loaders"] = _numbered(last["loaders"])
    return manifest


def _weights(side: Directory) -> dict[tuple[str, str], WholeTensor]:
    """The tensors of a run over all ranks at its first start; of a file alone, those that its manifest states."""
    return whole_tensors(first_manifests(side.path) if side.path.is_dir() else [side.manifest])


def _epoch_weights(left: Directory, right: Directory) -> tuple[WeightsDifference, ...]:
    """The tensors that differ at the end of the first epoch at whose end any does; none if a spec does not ask for weights of epochs."""
    asked = [(_resolved(side).get("provenance") or {}).get("weights") == "epochs" for side in (left, right)]
    return weights_differences(epoch_tables(left), epoch_tables(right)) if all(asked) else ()


def _numbered(value: Any) -> Any:
    """Plain data with lists as mappings by number, so that a difference has a place."""
    rows = dict(enumerate(value)) if isinstance(value, list) else value
    return {str(name): _numbered(one) for name, one in rows.items()} if isinstance(rows, dict) else value


def _closing(side: Directory, at: int) -> dict[str, Any]:
    """The closing record of one of the files that count; empty if there is none."""
    found = side.file(side.current[at].name).document("closing") if side.current else None
    return found if isinstance(found, dict) else {}


def _gaps(a: Gaps, b: Gaps, renames: Sequence[Rename]) -> tuple[GapDifference, ...]:
    """The missing captures that the sealed files state, if they differ between the runs; by the names of the first run."""
    ours = {renamed(key, renames): key for _, key, _ in a}
    theirs = {(epoch, ours.get(key, key), reason): count for (epoch, key, reason), count in b.items()}
    return tuple(
        GapDifference(*place, a[place], theirs.get(place, 0)) for place in sorted({*a, *theirs}) if a[place] != theirs.get(place, 0)
    )


def _lacking(side: Directory, compared: ComparedRun) -> Gaps:
    rows = [(entry.epoch, row) for entry in side.current if entry.sealed for row in side.file(entry.name).document("gaps") or ()]
    parallel = is_parallel({*compared.keys, *(SeriesKey(*row[:4]) for _, row in rows)})
    found: Gaps = Counter()
    for epoch, row in rows:
        found[epoch, without_wrappers(SeriesKey(*row[:4]), parallel), row[4]] += row[5]
    return found


def _compare(
    ours: ComparedRun, theirs: ComparedRun, renames: Sequence[Rename], tolerances: Tolerances, order: PlanOrder, by_digest: bool
) -> Iterator[tuple[tuple[SeriesKey, int], SeriesDifference]]:
    """All series of both sides; an extra series is marked so that it cannot match one of the first side."""
    pairs = pair(ours.keys, theirs.keys, renames)
    for key in with_progress(sorted(ours.keys, key=order.series), "series"):
        other = pairs.get(key)
        found = SeriesDifference(key, other if other != key else None)
        align(ours, key, theirs, other, found, tolerances, by_digest)
        yield (key, 0), found
    for key in sorted(theirs.keys - set(pairs.values()), key=order.series):
        found = SeriesDifference(key)
        align(ours, None, theirs, key, found, tolerances, by_digest)
        yield (key, 1), found
