"""Compose files into one tree of plain data: `extends` and `defaults`, each value with its place."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from os.path import normpath
from pathlib import Path as FilePath
from typing import Any

from probes.errors import FileRefused, Problem, SpecError, StorageError
from probes.plain_file import regular
from probes.spec.recognition import is_spec
from probes.spec.yaml.document import Document, Mark, Path, kind_of
from probes.spec.yaml.reader import MAX_BYTES, read_partly, too_large

Files = list[tuple[str, str]]
MAX_FILES = 32
_KEYS = "probes|extends|vars|defaults|sinks|limits|models|tolerance|clock|provenance|on_error|durability|allow_edits|rules"
_NAMES = {"version", "name", "about"}  # keys that other YAML files have, too
_TOP = re.compile(rb"^[\"']?([^\s#\"':-][^\s\"':]*)[\"']?\s*:", re.MULTILINE)
_SPEC_KEY = re.compile(rf"^[\"']?(?:{_KEYS})[\"']?\s*:".encode(), re.MULTILINE)


def problem(document: Document, path: Path, code: str, message: str, hint: str = "", *, key: bool = False) -> Problem:
    """A problem at a path of a document."""
    mark = document.at(path, key=key)
    dotted = ".".join(str(part) for part in path)
    if mark is None:
        return Problem(code, message, hint, path=dotted)
    return Problem(code, message, hint, mark.file, mark.line, mark.column, mark.width, mark.source, dotted)


def file_bytes(path: FilePath, most: int = MAX_BYTES) -> bytes:
    """The bytes of a spec file, or of another small user file.

    Args:
        path: a regular file, a link to one, or what the shell passes on below `/dev`.
        most: a larger file is not read.

    Raises:
        StorageError: it cannot be read, or is of another kind.
        SpecError: it is too large.
    """
    try:
        passed_on = path.parent in (FilePath("/dev"), FilePath("/dev/fd"))
        with os.fdopen(os.open(path, os.O_RDONLY) if passed_on else regular(path, follow=True), "rb") as file:
            text = file.read(most + 1)
            size = max(len(text), os.fstat(file.fileno()).st_size)
    except FileRefused as error:
        raise StorageError(f'cannot read "{path}": it is not a regular file') from error
    except (StorageError, OSError) as error:
        cause = error.__cause__ if isinstance(error, StorageError) else error
        raise StorageError(f'cannot read "{path}": {getattr(cause, "strerror", None) or error}') from error
    if size > most:
        raise SpecError([too_large(size, str(path), most)])
    return text


def first_bytes(path: FilePath) -> bytes:
    """The bytes of the file named as a spec; through a link, only those of a spec, because messages show its lines.

    Raises:
        StorageError: it cannot be read, or is a link to a file that is not a spec.
        SpecError: it is too large.
    """
    text = file_bytes(path)
    if path.is_symlink() and not _is_spec(text):
        raise StorageError(f'"{path}" is a link to a file that is not a spec: it has no key of a spec at its top level')
    return text


def gather(text: bytes, name: str, folder: FilePath | None, files: Files) -> Document:
    """Read a document from a file and everything it extends; values of the file itself take precedence.

    Args:
        text: the bytes of the file.
        name: its name for messages.
        folder: where relative names start; None if there is no file.
        files: collects (name, SHA-256) of every file read, the first one first.
    """
    return _gather(text, name, folder, files, (), None if folder is None else _root(folder.resolve()))


def _gather(text: bytes, name: str, folder: FilePath | None, files: Files, above: tuple[FilePath, ...], root: FilePath | None) -> Document:
    files.append((name, hashlib.sha256(text).hexdigest()))
    document = read_partly(text, name)
    if not isinstance(document.data, dict):
        message = f"the top level must be a mapping, found {kind_of(document.data)}"
        raise SpecError([problem(document, (), "not-a-mapping", message, "start with `version: 1`")])
    bases = document.data.pop("extends", [])
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        hint = f"write [{bases}]" if isinstance(bases, str) and bases else ""
        document.refuse(("extends",), problem(document, ("extends",), "wrong-type", "`extends` must be a list of file names", hint))
        raise SpecError(document.problems)
    merged, missing = Document({}), list[Problem]()
    for index, base in enumerate(bases):
        try:
            merge(merged, _base(document, base, ("extends", index), folder, files, above, root))
        except SpecError as error:  # a spec without one of its files cannot be checked further
            missing += error.problems
    if missing:
        raise SpecError([*document.problems, *missing])
    merge(merged, document)
    return merged


def _base(
    document: Document, base: str, at: Path, folder: FilePath | None, files: Files, above: tuple[FilePath, ...], root: FilePath | None
) -> Document:
    if folder is None and not base.startswith("preset:"):
        raise SpecError(
            [problem(document, at, "extends-without-file", f'"{base}" is relative to the folder of a file, and this spec is not in a file')]
        )
    try:
        path = _path_of(document, base, at, folder, root)
        real = path.resolve()
    except OSError as error:  # a name that no file can have
        raise SpecError([problem(document, at, "missing-file", f'"{base}" cannot be a file: {error.strerror}')]) from error
    if real in above:
        chain = " -> ".join(file.name for file in (*above[above.index(real) :], real))
        raise SpecError(
            [
                problem(
                    document, at, "extends-cycle", f'"{base}" extends this file, so the files extend each other', f"remove one of {chain}"
                )
            ]
        )
    if len(files) >= MAX_FILES:
        raise SpecError([problem(document, at, "too-many-files", f"more than {MAX_FILES} files are extended")])
    text = file_bytes(path)
    if not _is_spec(text):  # its lines are not shown, because the file may be any that this user can read
        raise SpecError([problem(document, at, "extends-no-spec", f'"{base}" is not a spec: it has no key of a spec at its top level')])
    shown = base if base.startswith("preset:") else str(path)
    return _gather(text, shown, path.parent, files, (*above, real), root)


def _path_of(document: Document, base: str, at: Path, folder: FilePath | None, root: FilePath | None) -> FilePath:
    """The path of an extended file, which exists and may be read."""
    path = preset_path(base) if base.startswith("preset:") else (folder or FilePath()) / base
    if FilePath(base).is_absolute():
        raise SpecError([problem(document, at, "absolute-path", f'"{base}" is absolute; write a path relative to the folder of this file')])
    if root is not None and path is not None and not base.startswith("preset:") and (refused := _outside(path, root)):
        raise SpecError([problem(document, at, "extends-outside", f'"{base}" {refused}', "copy the file to the folder of this one")])
    if path is None or not path.is_file():
        hint = similar_preset(base) if path is None else _similar_file(base, path)
        raise SpecError([problem(document, at, "missing-file", f'"{base}" does not exist', hint)])
    return path


def _is_spec(text: bytes) -> bool:
    """Whether a text has a top-level key that only specs have, or only keys that specs have."""
    if is_spec(text):
        return True
    keys = {key.decode(errors="replace") for key in _TOP.findall(text)}
    return _SPEC_KEY.search(text) is not None or (bool(keys) and keys <= _NAMES)


def _root(folder: FilePath) -> FilePath:
    """The folder that contains all files that a spec may extend: its repository; without one its own folder."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _outside(path: FilePath, root: FilePath) -> str:
    """The reason why a file may not be extended, whether or not it exists; an empty text if it may."""
    place = FilePath(normpath(FilePath.cwd() / path.parent.resolve() / path.name))
    if not place.is_relative_to(root):
        return f'is outside of "{root}", where this spec is'
    named = FilePath(normpath(FilePath.cwd() / path))
    links = [below for below in (named, *named.parents) if below.is_relative_to(root) and below != root and below.is_symlink()]
    return "is a link, or in a folder that is a link" if links else ""


def _similar_file(base: str, path: FilePath) -> str:
    """A hint with a file of a similar name, or with the place where the file was searched."""
    folder = path.parent
    others = {other.stem: other.name for other in sorted(folder.glob("*.y*ml"))} if folder.is_dir() else {}
    near = get_close_matches(path.stem, others, 1)
    return f"did you mean `{others[near[0]]}`?" if near else f'"{base}" is relative to the folder of this file'


def preset_folder() -> FilePath:
    """The folder of the presets."""
    return FilePath(__file__).parent.parent / "presets"


def preset_names() -> list[str]:
    """The names of the presets in specs and calls."""
    return sorted(f"preset:{path.stem}" for path in preset_folder().glob("*.yaml"))


def preset_path(name: str) -> FilePath | None:
    """The file of a preset, or None if there is no such preset."""
    return preset_folder() / f"{name.removeprefix('preset:')}.yaml" if name in preset_names() else None


def similar_preset(name: str) -> str:
    """A hint with the preset of a similar name, or with all presets; the prefix, which all have, is not compared."""
    near = get_close_matches(name.removeprefix("preset:"), [known.removeprefix("preset:") for known in preset_names()], 1)
    return f"did you mean `preset:{near[0]}`?" if near else f"known: {', '.join(preset_names())}"


def merge(base: Document, over: Document) -> None:
    """Merge one document into another: mappings key by key; any other value is replaced, with its places."""
    base.data = _merged(base, over, base.data, over.data, ())
    base.problems += over.problems
    base.unreadable |= over.unreadable
    base.values.setdefault((), next(iter(over.values.values()), Mark("", 0, 0, 0, "")))


def _merged(base: Document, over: Document, old: Any, new: Any, path: Path) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        result = dict(old)
        for key, value in new.items():
            result[key] = _merged(base, over, old.get(key), value, (*path, key))
        return result
    forget_places(base, old, path)
    copy_places(over, base, new, path, path)
    return new


def paths(value: Any, path: Path) -> Iterator[Path]:
    """The paths of a value and of everything in it."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from paths(member, (*path, key))


def forget_places(document: Document, value: Any, path: Path) -> None:
    """Remove the places of a value that is about to be replaced."""
    for place in paths(value, path):
        document.keys.pop(place, None)
        document.values.pop(place, None)
        document.unreadable.discard(place)


def copy_places(source: Document, goal: Document, value: Any, at: Path, to: Path) -> None:
    """Give a value, and everything in it, the same places in `goal` as in `source`."""
    for path in paths(value, at):
        place = (*to, *path[len(at) :])
        for known, mine in ((source.keys, goal.keys), (source.values, goal.values)):
            if path in known:
                mine[place] = known[path]
        if path in source.unreadable:
            goal.unreadable.add(place)


def lay_defaults(document: Document) -> None:
    """Give every probe without an edit the values of `defaults` that it does not set; the schedule key by key."""
    defaults = document.data.get("defaults")
    probes = document.data.get("probes")
    if not isinstance(defaults, dict) or not isinstance(probes, dict):
        return
    for name, probe in probes.items():
        if isinstance(probe, dict) and "edit" not in probe:
            probes[name] = _under(document, defaults, probe, ("defaults",), ("probes", name))


def _under(document: Document, low: dict[str, Any], high: dict[str, Any], at: Path, to: Path) -> dict[str, Any]:
    result = dict(high)
    for key, value in low.items():
        source, place = (*at, key), (*to, key)
        if key not in high:
            result[key] = value
            copy_places(document, document, value, source, place)
        elif key == "when" and isinstance(value, dict) and isinstance(high[key], dict):
            result[key] = _under(document, value, high[key], source, place)
    return result
