"""The series of one run that correspond to series of another, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from probes.clock import SeriesKey
from probes.errors import UsageError

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
DATA_PARALLEL = "module"
ROOTS = ("input", "output", "grad_output", "grad_input", "grad_input_total", "data", "grad", "update", "state", "memory", "loop")


class Rename(NamedTuple):
    """One `--map OLD=NEW`.

    Attributes:
        text: as it was given.
        old: module path or prefix of one in the first run; empty for any.
        new: its replacement in the second run.
        old_leaf: leaf in the first run; empty for any.
        new_leaf: leaf in the second run.
    """

    text: str
    old: str
    new: str
    old_leaf: str
    new_leaf: str

    def __call__(self, key: SeriesKey) -> SeriesKey | None:
        """The name in the second run, or None if this does not apply."""
        if self.old_leaf and key.leaf != self.old_leaf:
            return None
        leaf = self.new_leaf if self.old_leaf else key.leaf
        if not self.old:
            return key._replace(leaf=leaf) if self.old_leaf else None
        if key.target == self.old:
            return key._replace(target=self.new, leaf=leaf)
        if key.target.startswith(f"{self.old}."):
            return key._replace(target=f"{self.new}{key.target.removeprefix(self.old)}".lstrip("."), leaf=leaf)
        return None


def parse_rename(text: str) -> Rename:
    """Parse `OLD=NEW`: a module path or its beginning, or `[path]:leaf` on both sides.

    Raises:
        UsageError: it is not of this form.
    """
    old, equals, new = text.partition("=")
    old_path, old_colon, old_leaf = old.rpartition(":") if ":" in old else (old, "", "")
    new_path, new_colon, new_leaf = new.rpartition(":") if ":" in new else (new, "", "")
    if not equals or old_colon != new_colon or (old_colon and not (old_leaf and new_leaf)) or not old:
        raise UsageError(f'--map takes OLD=NEW, each a module path or path:leaf, not "{text}"')
    return Rename(text, old_path, new_path, old_leaf, new_leaf)


def canonical(target: str) -> str:
    """A module path without the levels of wrappers."""
    return ".".join(level for level in target.split(".") if level not in WRAPPERS)


def pair(a: Iterable[SeriesKey], b: Iterable[SeriesKey], renames: Sequence[Rename]) -> dict[SeriesKey, SeriesKey]:
    """Map the series of the first run to the corresponding ones of the second.

    Args:
        a: series of the first run.
        b: series of the second run.
        renames: of module paths and leaves; each must apply.

    Raises:
        UsageError: a renaming applies to no series, leads to none, or leads two series to one.
    """
    there = normalised(b)
    used: dict[Rename, bool] = {}  # and whether it led to a series
    found: dict[SeriesKey, SeriesKey] = {}
    for name, key in normalised(a).items():
        wanted = name
        for rename in renames:
            renamed = rename(name)
            if renamed is not None:
                used[rename] = used.get(rename, False) or renamed in there
                wanted = renamed
                break
        if wanted in there:
            found[key] = there[wanted]
    _check(renames, used, found)
    return found


def _check(renames: Sequence[Rename], used: Mapping[Rename, bool], found: Mapping[SeriesKey, SeriesKey]) -> None:
    for rename in renames:
        if not used.get(rename, False):
            which = "leads to no series of the second run" if rename in used else "applies to no series of the first run"
            raise UsageError(f'--map "{rename.text}" {which}')
    seen: dict[SeriesKey, SeriesKey] = {}
    for key, other in found.items():
        if other in seen:
            raise UsageError(f'"{seen[other]}" and "{key}" of the first run would both be "{other}" of the second; change --map')
        seen[other] = key


def is_parallel(keys: Iterable[SeriesKey]) -> bool:
    """Whether all modules of a run are below a wrapper of DataParallel."""
    listed = list(keys)
    return bool(listed) and all(key.target.split(".")[0] == DATA_PARALLEL for key in listed)


def normalised(keys: Iterable[SeriesKey]) -> dict[SeriesKey, SeriesKey]:
    """Series by their names without wrappers; by their own names if two would be equal."""
    listed = list(keys)
    parallel = is_parallel(listed)
    names: dict[SeriesKey, SeriesKey] = {}
    for key in listed:
        name = without_wrappers(key, parallel)
        names[key if name in names else name] = key
    return names


def without_wrappers(key: SeriesKey, parallel: bool) -> SeriesKey:
    """A series by its name without wrappers.

    Args:
        key: its name.
        parallel: whether all modules of the run are below a wrapper of DataParallel.
    """
    target = canonical(key.target)
    return key._replace(target=target.partition(".")[2] if parallel else target)


def renamed(name: SeriesKey, renames: Iterable[Rename]) -> SeriesKey:
    """The name in the second run by the first renaming that applies."""
    return next((found for rename in renames if (found := rename(name)) is not None), name)


class PlanOrder:
    """The plan's order: probes as the spec lists them, modules as the model does.

    Args:
        manifest: of the run, or an empty mapping; then everything is sorted by name.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        probes = (manifest.get("spec") or {}).get("probes") or ()
        modules = [module["path"] for model in manifest.get("models") or () for module in model.get("modules") or ()]
        self._probes = {name: index for index, name in enumerate(probes)}
        self._modules: dict[str, int] = {path: index for index, path in reversed(list(enumerate(modules)))}

    def series(self, key: SeriesKey) -> tuple[Any, ...]:
        """The sort key of series."""
        root, _, rest = key.leaf.partition(".")
        value = ROOTS.index(root) if root in ROOTS else len(ROOTS)
        probe = self._probes.get(key.probe, len(self._probes))
        return probe, key.probe, self._module(key.target), key.target, value, rest, key.phase != "train", key.phase

    def _module(self, target: str) -> int:
        """The index of a module, or of the module of a parameter."""
        while target and target not in self._modules:
            target = target.rpartition(".")[0]
        return self._modules.get(target, len(self._modules))
