"""Compose a spec into one tree of plain data: `extends`, `defaults` and `vars`, each value with its place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

from probes.errors import Problem, SpecError, nearest
from probes.spec.spec_files import extended_root, file_bytes, has_spec_keys, preset_path, similar_file, similar_preset, why_outside
from probes.spec.yaml.document import Document, Mark, Path, kind_of
from probes.spec.yaml.reader import read_partly

Files = list[tuple[str, str]]
MAX_FILES = 32


def problem(document: Document, path: Path, code: str, message: str, hint: str = "", *, key: bool = False) -> Problem:
    """A problem at a path of a document."""
    mark = document.at(path, key=key)
    dotted = ".".join(str(part) for part in path)
    if mark is None:
        return Problem(code, message, hint, path=dotted)
    return Problem(code, message, hint, mark.file, mark.line, mark.column, mark.width, mark.source, dotted)


def gather(text: bytes, name: str, folder: FilePath | None, files: Files) -> Document:
    """Read a document from a file and everything it extends; values of the file itself take precedence.

    Args:
        text: the bytes of the file.
        name: its name for messages.
        folder: where relative names start; None if there is no file.
        files: collects (name, SHA-256) of every file read, the first one first.
    """
    return _gather(text, name, folder, files, (), None if folder is None else extended_root(folder.resolve()))


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
    if not has_spec_keys(text):  # its lines are not shown, because the file may be any that this user can read
        raise SpecError([problem(document, at, "extends-no-spec", f'"{base}" is not a spec: it has no key of a spec at its top level')])
    shown = base if base.startswith("preset:") else str(path)
    return _gather(text, shown, path.parent, files, (*above, real), root)


def _path_of(document: Document, base: str, at: Path, folder: FilePath | None, root: FilePath | None) -> FilePath:
    """The path of an extended file, which exists and may be read."""
    path = preset_path(base) if base.startswith("preset:") else (folder or FilePath()) / base
    if FilePath(base).is_absolute():
        raise SpecError([problem(document, at, "absolute-path", f'"{base}" is absolute; write a path relative to the folder of this file')])
    if root is not None and path is not None and not base.startswith("preset:") and (refused := why_outside(path, root)):
        raise SpecError([problem(document, at, "extends-outside", f'"{base}" {refused}', "copy the file to the folder of this one")])
    if path is None or not path.is_file():
        hint = similar_preset(base) if path is None else similar_file(base, path)
        raise SpecError([problem(document, at, "missing-file", f'"{base}" does not exist', hint)])
    return path


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


def substitute(document: Document) -> None:
    """Replace `${name}` by the value of a variable; a text of only `${name}` takes the variable's type."""
    given = document.data.pop("vars", {})
    if not isinstance(given, dict):
        if ("vars",) not in document.unreadable:
            document.refuse(("vars",), problem(document, ("vars",), "wrong-type", "`vars` must be a mapping of names to values"))
        given = None
    for name, value in (given or {}).items():
        _check(document, name, value)
    variables = Variables(document, given)
    document.data = variables.walk(document.data, ())
    variables.refuse_unused()


def _check(document: Document, name: str, value: Any) -> None:
    """Refuse a variable whose value is not a plain scalar."""
    path = ("vars", name)
    if isinstance(value, dict | list):
        message = f"variable `{name}` must be a text, a number or a boolean, got {kind_of(value)}"
        document.refuse(path, problem(document, path, "wrong-type", message))
    if isinstance(value, str) and "${" in value:
        message = f"`{value}` uses a variable; a value of `vars` cannot use another variable"
        document.refuse(path, problem(document, path, "unknown-variable", message))


class Variables:
    """The variables of a spec, and the names that its texts use.

    Args:
        document: where they are used.
        given: name -> value; None if `vars` cannot be read.
    """

    def __init__(self, document: Document, given: dict[str, Any] | None) -> None:
        self.document = document
        self.given = given or {}
        self.known = given is not None
        self.used: set[str] = set()
        self.meant: set[str] = set()

    def walk(self, value: Any, path: Path) -> Any:
        """A value with the variables in its texts replaced."""
        if isinstance(value, dict):
            return {key: self.walk(member, (*path, key)) for key, member in value.items()}
        if isinstance(value, list):
            return [self.walk(member, (*path, index)) for index, member in enumerate(value)]
        return self._replaced(value, path) if isinstance(value, str) and "${" in value else value

    def refuse_unused(self) -> None:
        """Refuse each variable that no text uses."""
        for name in self.given:
            path = ("vars", name)
            if name not in self.used | self.meant:
                message = f"variable `{name}` is not used, so it has no effect"
                self.document.refuse(path, problem(self.document, path, "unused-variable", message, "use it, or remove it", key=True))

    def _replaced(self, text: str, path: Path) -> Any:
        if text.startswith("${") and text.find("}") == len(text) - 1:
            return self._value(text[2:-1], path)
        parts, rest = [], text
        while "${" in rest:
            before, _, rest = rest.partition("${")
            name, closed, rest = rest.partition("}")
            if not closed:
                self._refuse(path, f"`{text}` has a `${{` that is not closed", "add `}`")
                return text
            value = self._value(name, path)
            parts += [before, str(value).lower() if isinstance(value, bool) else str(value)]
        return "".join([*parts, rest])

    def _value(self, name: str, path: Path) -> Any:
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        if not self.known:
            self.document.unreadable.add(path)
            return f"${{{name}}}"
        if name.isupper() and not self.given:
            hint = "environment variables are not expanded in specs; declare it under `vars`, and set it with --set"
        else:
            self.meant |= {other for other in self.given if nearest(name, [other])}  # report a typo once
            hint = nearest(f"${{{name}}}", [f"${{{other}}}" for other in self.given])
            hint = hint or (f"declare it: `vars: {{{name}: ...}}`" if name else "write the name of a variable of `vars`")
        self._refuse(path, f"variable `${{{name}}}` is not in `vars`", hint)
        return f"${{{name}}}"

    def _refuse(self, path: Path, message: str, hint: str) -> None:
        self.document.refuse(path, problem(self.document, path, "unknown-variable", message, hint))
