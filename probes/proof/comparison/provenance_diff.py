"""The differences in the provenance of two runs; likely causes of a divergence come first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from probes.proof.comparison.difference import ProvenanceDifference
from probes.run_directory.launch.whole_weights import WholeTensor

Weights: TypeAlias = tuple[Mapping[tuple[str, str], WholeTensor], Mapping[tuple[str, str], WholeTensor]]

NONE = "nothing recorded"
LISTED = 8

TABLES = (
    ("modules", "path", ("type", "same_as")),
    ("tensors", "name", ("role", "dtype", "shape", "trained", "same_as")),
)

# Settings that are known to change numbers come first, descriptions of the run last. Times, ids and directories are never compared.
CAUSES = (
    "spec.identity",
    "spec.edits",
    "code.script",
    "code.sha256",
    "code.git.commit",
    "code.git.diff.sha256",
    "code.argv",
    "random.torch_seed",
    "random.digests.torch",
)
SURROUNDINGS = (
    "environment.torch",
    "environment.torch_commit",
    "environment.cuda",
    "environment.cudnn",
    "environment.device",
    "environment.cpu",
    "environment.threads",
    "environment.interop_threads",
    "environment.deterministic",
    "environment.cudnn_deterministic",
    "environment.cudnn_benchmark",
    "environment.matmul_precision",
    "environment.tf32",
    "environment.autocast",
    "environment.world",
    "environment.default_dtype",
    "environment.sdp",
    "environment.variables",
    "environment.numpy",
    "environment.python",
    "data",
    "tags",
    "machine",
    "torch_build",
    "probes",
)

# Python seeds these from the system's entropy, so they differ between all runs that do not seed them.
UNSEEDED = ("python", "numpy")
IF_DRAWN = "seeded differently; matters only if the data or the model draw from it"


def provenance_differences(a: Mapping[str, Any], b: Mapping[str, Any], whole: Weights = ({}, {})) -> tuple[ProvenanceDifference, ...]:
    """The differences of two manifests.

    Args:
        a: the first manifest, as plain data; may be empty.
        b: the second.
        whole: the tensors of both, over all ranks; they are compared if one side has parts of them, or on another number of ranks.
    """
    if not a or not b:
        return () if not a and not b else (ProvenanceDifference("manifest", "present" if a else NONE, "present" if b else NONE),)
    packages = _packages(a.get("packages") or {}, b.get("packages") or {})
    causes = (*_listed(CAUSES, a, b), *_files(a, b), *_devices(a, b))
    loaders = _listed(["loaders"], a, b) if "loaders" in a and "loaders" in b else ()
    return (*causes, *loaders, *_models(a, b, whole), *_listed(SURROUNDINGS, a, b), *packages, *_generators(a, b))


def _listed(places: Iterable[str], a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProvenanceDifference]:
    for place in places:
        one, other = _at(a, place), _at(b, place)
        yield from _differences(place, one, other, (_empty(place, a), _empty(place, b)))


def _files(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProvenanceDifference]:
    """The imported files that differ, if both runs recorded them."""
    ours, theirs = _at(a, "code.modules"), _at(b, "code.modules")
    if ours is not None and theirs is not None:
        yield from _table("code.modules", *({one["name"]: one["sha256"] for one in side} for side in (ours, theirs)))


def _devices(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProvenanceDifference]:
    """The generators of devices."""
    yield from _listed([f"random.digests.{name}" for name in _generator_names(a, b) if name not in ("torch", *UNSEEDED)], a, b)


def _generators(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProvenanceDifference]:
    """The generators that PyTorch itself does not use."""
    for one in _listed([f"random.digests.{name}" for name in _generator_names(a, b) if name in UNSEEDED], a, b):
        yield ProvenanceDifference(one.place, one.a, one.b, IF_DRAWN if NONE not in (one.a, one.b) else "")


def _generator_names(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return sorted({*(_at(a, "random.digests") or ()), *(_at(b, "random.digests") or ())})


def _empty(place: str, manifest: Mapping[str, Any]) -> str:
    """The text for a missing value."""
    if place == "code.argv" and _at(manifest, place) is not None:
        return "(no arguments)"
    if place == "code.git.diff.sha256" and _at(manifest, "code.git.dirty") is False:
        return "(clean tree)"
    return NONE


def _at(manifest: Mapping[str, Any], place: str) -> Any:
    value: Any = manifest
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _differences(place: str, a: Any, b: Any, empty: tuple[str, str] = (NONE, NONE)) -> Iterator[ProvenanceDifference]:
    if a == b:
        return
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}):
            yield from _differences(f"{place}.{key}", a.get(key), b.get(key))
        return
    texts = _text(a, empty[0]), _text(b, empty[1])
    yield ProvenanceDifference(place, *(_lines(*texts) if all("\n" in text for text in texts) else texts))


def _text(value: Any, empty: str = NONE) -> str:
    if value is None or value == [] or value == "":
        return empty
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return str(value)


def _lines(a: str, b: str) -> list[str]:
    """The lines that only one of two long texts has."""
    ours, theirs = a.splitlines(), b.splitlines()
    alone = ([line.strip(" -") for line in mine if line not in other] for mine, other in ((ours, theirs), (theirs, ours)))
    return ["; ".join(lines) or "(nothing more)" for lines in alone]


def _models(a: Mapping[str, Any], b: Mapping[str, Any], whole: Weights) -> Iterator[ProvenanceDifference]:
    """The first differences of models: modules, then tables of tensors, then weights."""
    ours, theirs = ({model["name"]: model for model in side.get("models") or ()} for side in (a, b))
    for name in sorted({*ours, *theirs}):
        place = f"models.{name}" if name else "models"
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            yield ProvenanceDifference(place, one["type"] if one else NONE, other["type"] if other else NONE)
            continue
        for table, name_key, keys in TABLES:
            yield from _table(f"{place}.{table}", _by(one, table, name_key, keys), _by(other, table, name_key, keys))
        yield from _table(f"{place}.weights", *_weights(name, one, other, whole))


def _weights(model: str, one: Mapping[str, Any], other: Mapping[str, Any], whole: Weights) -> tuple[dict[str, str], dict[str, str]]:
    """The identity of the content of each tensor: its digest, or if it lies on ranks in two ways, the sum over its parts."""
    ours, theirs = ({row["name"]: row for row in side.get("tensors") or () if row.get("same_as") is None} for side in (one, other))
    sums = [{tensor: found for (of, tensor), found in side.items() if of == model} for side in whole]
    by_sum = {name for name in {*sums[0], *sums[1]} if not _is_whole(name, ours, theirs)}
    return (
        {name: _content(name, ours, sums[0], name in by_sum) for name in {**ours, **sums[0]}},
        {name: _content(name, theirs, sums[1], name in by_sum) for name in {**theirs, **sums[1]}},
    )


def _is_whole(name: str, *sides: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the first rank of each run holds the complete tensor."""
    return all(name in side and side[name].get("sharding") is None for side in sides)


def _content(name: str, rows: Mapping[str, Mapping[str, Any]], sums: Mapping[str, WholeTensor], by_sum: bool) -> str:
    if not by_sum:
        return str(rows[name].get("digest") or "") if name in rows else ""
    found = sums.get(name)
    return "" if found is None else found.sum or f"not known, as {found.lacks}"


def _by(model: Mapping[str, Any], table: str, name: str, keys: tuple[str, ...]) -> dict[str, str]:
    return {row[name]: " ".join(str(row[key]) for key in keys if row.get(key) is not None) for row in model.get(table) or ()}


def _table(place: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[ProvenanceDifference]:
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    for name in names[:LISTED]:
        yield ProvenanceDifference(f"{place}.{name}", a.get(name) or NONE, b.get(name) or NONE)
    if len(names) > LISTED:
        yield ProvenanceDifference(place, f"{len(names) - LISTED} more", f"{len(names) - LISTED} more")


def _packages(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[ProvenanceDifference]:
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield ProvenanceDifference(f"packages.{name}", a.get(name) or NONE, b.get(name) or NONE)
