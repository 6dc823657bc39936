"""A spec as far as it can be read: correct parts are validated, and incorrect parts are known by their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from probes.spec.cross_checks.fault import Unreadable
from probes.spec.key_hints import meant_key
from probes.spec.models import VERSION, Spec
from probes.spec.yaml.document import Document, Path

MOST_PASSES = 100  # each pass leaves out faulty parts, which can make the enclosing parts faulty
KEY = "[key]"  # pydantic's mark in the location of a faulty key
STAND_IN = {"version": VERSION, "probes": {"stand-in": {"hook": "forward", "modules": ["any"]}}}
"""Replacements for required parts that cannot be read; no rule sees them."""


class Places:
    """Places of a document that cannot be read."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.paths: set[Path] = set()
        self.above: set[Path] = set()
        self.add(paths)

    def add(self, paths: Iterable[Path]) -> None:
        """Add places."""
        for path in paths:
            self.paths.add(path)
            self.above.update(path[:length] for length in range(len(path)))

    def __contains__(self, path: object) -> bool:
        return path in self.paths

    def hold(self, path: Path) -> bool:
        """Whether one of the places is this path or contains it."""
        return any(path[:length] in self.paths for length in range(len(path) + 1))

    def touch(self, path: Path) -> bool:
        """Whether one of the places is this path, contains it, or is inside it."""
        return path in self.above or self.hold(path)


class PartialSpec:
    """The spec of a document, as far as it can be read.

    Args:
        document: the document; it knows the places that YAML or a variable made unreadable.

    Attributes:
        spec: the spec; reading a place of it that cannot be read raises `Unreadable`.
        entries: what pydantic found wrong, each with its place in the document.
    """

    def __init__(self, document: Document) -> None:
        self.data = document.data
        self.entries: list[tuple[Path, Any]] = []
        self._unreadable = Places(document.unreadable)
        self.spec = cast(Spec, guarded(self._validated(), self.data, (), self._unreadable))

    def _validated(self) -> Spec:
        """Validate, leave out faulty parts, and validate again, until no fault is left."""
        stand_in: dict[str, Any] = {}
        for _ in range(MOST_PASSES):
            try:
                return Spec.model_validate(self._readable_data(stand_in))
            except ValidationError as error:
                stand_in = STAND_IN
                self._leave_out([(self._path(entry["loc"]), entry) for entry in error.errors(include_url=False)])
        raise AssertionError("BUG: a spec is wrong although everything wrong was left out")

    def _readable_data(self, stand_in: dict[str, Any]) -> dict[str, Any]:
        data: dict[str, Any] = _without(self.data, (), self._unreadable)
        return stand_in | data if data.get("probes") or not stand_in else data | stand_in

    def _leave_out(self, found: list[tuple[Path, Any]]) -> None:
        """Keep the errors that do not follow from parts left out before, and leave out the places of all errors."""
        self._unreadable.add(place for path, entry in found if entry["type"] == "extra_forbidden" for place in self._meant(path))
        self.entries += [(path, entry) for path, entry in found if not self._follows(path, entry)]
        self._unreadable.add(path or _place(path, entry) for path, entry in found)

    def _follows(self, path: Path, entry: Any) -> bool:
        """Whether an error may only follow from left-out parts; an unknown key is an error in any case."""
        place = _place(path, entry)
        return self._unreadable.hold(place) if KEY in entry["loc"] else self._unreadable.touch(place)

    def _meant(self, path: Path) -> list[Path]:
        """The place of the key that an unknown key probably means."""
        meant = meant_key(str(path[-1]), self.data, path[:-1])
        return [(*path[:-1], meant)] if meant and not self._has(path[:-1], meant) else []

    def _has(self, path: Path, key: str) -> bool:
        found = self.data
        for part in path:
            found = found[part]
        return key in found

    def _path(self, loc: tuple[Any, ...]) -> Path:
        """Convert a pydantic location to a path of the document; parts that are not in the file, such as `[key]`, are left out."""
        path: Path = ()
        data = self.data
        for part in loc:
            if isinstance(data, dict) and part in data and (*path, part) not in self._unreadable:
                path, data = (*path, part), data[part]
            elif isinstance(data, list) and isinstance(part, int):
                kept = [index for index in range(len(data)) if (*path, index) not in self._unreadable]
                if part < len(kept):
                    path, data = (*path, kept[part]), data[kept[part]]
        return path


def _place(path: Path, entry: Any) -> Path:
    """The path that an error concerns: a missing key is below the part that lacks it."""
    return (*path, entry["loc"][-1]) if entry["type"] == "missing" else (*path, *entry.get("ctx", {}).get("at", ()))


def _without(data: Any, path: Path, places: Places) -> Any:
    """Plain data without the members at some places."""
    if path not in places.above:
        return data
    if isinstance(data, dict):
        return {key: _without(value, (*path, key), places) for key, value in data.items() if (*path, key) not in places}
    if isinstance(data, list):
        return [_without(value, (*path, index), places) for index, value in enumerate(data) if (*path, index) not in places]
    return data


def guarded(value: Any, raw: Any, path: Path, places: Places) -> Any:
    """A validated value that raises `Unreadable` when one of the places is read; the value itself if it contains none."""
    if path in places:
        raise Unreadable
    if path not in places.above:
        return value
    if isinstance(value, BaseModel):
        return _GuardedPart(value, raw, path, places)
    return _GuardedMapping(value, raw, path, places) if isinstance(raw, dict) else _GuardedList(value, raw, path, places)


class _GuardedPart:
    """A part of a spec of which some keys cannot be read."""

    def __init__(self, part: BaseModel, raw: Any, path: Path, places: Places) -> None:
        self._part, self._raw, self._path, self._places = part, raw, path, places

    @property  # type: ignore[misc]  # `isinstance` asks for it, so that a rule need not know that it reads a guarded part
    def __class__(self) -> type[Any]:
        return type(self._part)

    def has(self, key: str) -> bool:
        """Whether the key exists, even with a value that cannot be read.

        Raises:
            Unreadable: the key may be misspelt.
        """
        if key not in self._raw and (*self._path, key) in self._places:
            raise Unreadable
        return key in self._raw

    def __getattr__(self, name: str) -> Any:
        computed = getattr(type(self._part), name, None)
        if isinstance(computed, property):
            return computed.fget(self) if computed.fget else None
        if callable(computed):
            return partial(computed, self)
        info = type(self._part).model_fields.get(name)
        key = (info.alias or name) if info is not None else name
        raw = self._raw.get(key) if isinstance(self._raw, dict) else None
        return guarded(getattr(self._part, name), raw, (*self._path, key), self._places)


class _GuardedMapping(Mapping[str, Any]):
    """A mapping of names with some unreadable members; the names can be read."""

    def __init__(self, members: Mapping[str, Any], raw: Mapping[str, Any], path: Path, places: Places) -> None:
        self._members, self._raw, self._path, self._places = members, raw, path, places

    def __getitem__(self, name: str) -> Any:
        if name not in self._raw:
            raise KeyError(name)
        return guarded(self._members.get(name), self._raw[name], (*self._path, name), self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class _GuardedList(Sequence[Any]):
    """A list with some unreadable members, in its original length."""

    def __init__(self, members: Sequence[Any], raw: Sequence[Any], path: Path, places: Places) -> None:
        kept = [index for index in range(len(raw)) if (*path, index) not in places]
        self._members = dict(zip(kept, members, strict=True))
        self._raw, self._path, self._places = raw, path, places

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self._raw):
            raise IndexError(index)
        return guarded(self._members.get(index), self._raw[index], (*self._path, index), self._places)

    def __len__(self) -> int:
        return len(self._raw)
