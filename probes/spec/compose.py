"""From files to one tree of plain data: `extends`, overrides, `defaults` and `${vars}`, each value with its place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import Any

from probes.document import Document, Mark, Path, plain, read
from probes.errors import Problem, SpecError, StorageError, nearest

Files = list[tuple[str, str]]
MAX_FILES = 32


def problem(document: Document, path: Path, code: str, message: str, hint: str = "", *, key: bool = False) -> Problem:
    """A problem at a path of a document."""
    mark = document.at(path, key=key)
    dotted = ".".join(str(part) for part in path)
    if mark is None:
        return Problem(code, message, hint, path=dotted)
    return Problem(code, message, hint, mark.file, mark.line, mark.column, mark.width, mark.source, dotted)


def file_bytes(path: FilePath) -> bytes:
    """The bytes of a spec file.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"spec '{path}' cannot be read: {error.strerror}") from error


def gather(text: bytes, name: str, folder: FilePath | None, files: Files) -> Document:
    """One document out of a file and everything it extends; what stands in the file itself wins.

    Args:
        text: the bytes of the file.
        name: its name for messages.
        folder: where relative names start; None where there is no file.
        files: collects (name, SHA-256) of every file read, the first one first.
    """
    return _gather(text, name, folder, files, ())


def _gather(text: bytes, name: str, folder: FilePath | None, files: Files, above: tuple[FilePath, ...]) -> Document:
    files.append((name, hashlib.sha256(text).hexdigest()))
    document = read(text, name)
    if not isinstance(document.data, dict):
        kind = {list: "a list", str: "a text"}.get(type(document.data), f"a {type(document.data).__name__}")
        raise SpecError([problem(document, (), "not-a-mapping", f"the top level must be a mapping, found {kind}")])
    bases = document.data.pop("extends", [])
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise SpecError([problem(document, ("extends",), "wrong-type", "`extends` is a list of file names", key=True)])
    merged = Document({})
    for index, base in enumerate(bases):
        merge(merged, _base(document, base, ("extends", index), folder, files, above))
    merge(merged, document)
    return merged


def _base(document: Document, base: str, at: Path, folder: FilePath | None, files: Files, above: tuple[FilePath, ...]) -> Document:
    if folder is None and not base.startswith("preset:"):
        raise SpecError([problem(document, at, "extends-without-file", f"'{base}' is relative to a file, but this spec is not in one")])
    path = preset_path(base) if base.startswith("preset:") else (folder or FilePath()) / base
    if FilePath(base).is_absolute():
        raise SpecError([problem(document, at, "absolute-path", f"'{base}' is absolute; `extends` is relative to the file it stands in")])
    if path is None or not path.is_file():
        hint = nearest(base, preset_names() if base.startswith("preset:") else [])
        raise SpecError([problem(document, at, "missing-file", f"'{base}' does not exist", hint)])
    real = path.resolve()
    if real in above:
        raise SpecError([problem(document, at, "extends-cycle", f"'{base}' extends this file in turn")])
    if len(files) >= MAX_FILES:
        raise SpecError([problem(document, at, "too-many-files", f"more than {MAX_FILES} files are extended")])
    shown = base if base.startswith("preset:") else str(path)
    return _gather(file_bytes(path), shown, path.parent, files, (*above, real))


def preset_folder() -> FilePath:
    """Where the package keeps its ready-made specs."""
    return FilePath(__file__).parent.parent / "presets"


def preset_names() -> list[str]:
    """The presets as they are named in specs and calls."""
    return sorted(f"preset:{path.stem}" for path in preset_folder().glob("*.yaml"))


def preset_path(name: str) -> FilePath | None:
    """The file of a preset, or None where there is no such preset."""
    return preset_folder() / f"{name.removeprefix('preset:')}.yaml" if name in preset_names() else None


def merge(base: Document, over: Document) -> None:
    """Lay one document over another: mappings key by key, anything else is replaced, with its places."""
    base.data = _merged(base, over, base.data, over.data, ())
    base.values.setdefault((), next(iter(over.values.values()), Mark("", 0, 0, 0, "")))


def _merged(base: Document, over: Document, old: Any, new: Any, path: Path) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        result = dict(old)
        for key, value in new.items():
            place = (*path, key)
            result[key] = _merged(base, over, old[key], value, place) if key in old else _taken(base, over, value, place)
        return result
    return _taken(base, over, new, path)


def _taken(base: Document, over: Document, value: Any, path: Path) -> Any:
    """A value with the places of everything in it."""
    for places, mine in ((over.keys, base.keys), (over.values, base.values)):
        for stale in [known for known in mine if known[: len(path)] == path] if path in mine else ():
            del mine[stale]
    length = len(path)
    base.keys.update({place: mark for place, mark in over.keys.items() if place[:length] == path})
    base.values.update({place: mark for place, mark in over.values.items() if place[:length] == path})
    return value


def override(document: Document, texts: Iterable[str]) -> None:
    """Apply `path=value` texts, as `--set` takes them; the value is read like a value of the file.

    Raises:
        SpecError: a text has no `=`, or a path leads through something that is not a mapping.
    """
    for text in texts:
        path_text, equals, value = text.partition("=")
        label = f"--set {path_text}"
        if not equals or not path_text:
            raise SpecError([Problem("bad-override", f"'{text}' is not path=value", "such as probes.acts.enabled=false", file="--set")])
        path = tuple(path_text.split("."))
        patch = read(value.encode(), label) if value[:1] in "[{\"'" else _scalar(value, label)
        _put(document, path, patch, label)


def _scalar(value: str, label: str) -> Document:
    try:
        data = plain(value)
    except ValueError as error:
        raise SpecError([Problem("bad-number", str(error), file=label)]) from None
    return Document(data, values={(): Mark(label, 1, 1, max(len(value), 1), value)})


def _put(document: Document, path: Path, patch: Document, label: str) -> None:
    node = document.data
    for key in path[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise SpecError([Problem("bad-override", f"`{key}` is not a mapping, so nothing can be set below it", file=label)])
    node[path[-1]] = patch.data
    for places, mine in ((patch.keys, document.keys), (patch.values, document.values)):
        for place, mark in places.items():
            mine[(*path, *place)] = mark
    document.keys[path] = next(iter(patch.values.values()))


def lay_defaults(document: Document) -> None:
    """Give every probe without an edit what `defaults` says and it does not: the schedule key by key."""
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
            for marks in (document.keys, document.values):
                marks.update({(*place, *path[len(source) :]): mark for path, mark in list(marks.items()) if path[: len(source)] == source})
        elif key == "when" and isinstance(value, dict) and isinstance(high[key], dict):
            result[key] = _under(document, value, high[key], source, place)
    return result


def substitute(document: Document) -> list[Problem]:
    """Replace `${name}` by the value of a variable; a text that is nothing else takes the variable's type."""
    variables = document.data.pop("vars", {})
    problems: list[Problem] = []
    if not isinstance(variables, dict):
        return [problem(document, ("vars",), "wrong-type", "`vars` is a mapping of names to values", key=True)]
    for name, value in variables.items():
        if isinstance(value, dict | list):
            problems.append(problem(document, ("vars", name), "wrong-type", f"variable `{name}` must be a text, a number or a boolean"))
    used: set[str] = set()

    def look(name: str, path: Path) -> Any:
        if name in variables:
            used.add(name)
            return variables[name]
        environment = name.isupper() and not variables
        hint = "environment variables are not expanded in specs" if environment else nearest(name, variables)
        problems.append(problem(document, path, "unknown-variable", f"variable `${{{name}}}` is not in `vars`", hint))
        return f"${{{name}}}"

    document.data = _walk(document.data, (), look)
    for name in variables:
        if name not in used:
            message = f"variable `{name}` is not used, so it would have no effect"
            problems.append(problem(document, ("vars", name), "unused-variable", message, "use it, or remove it", key=True))
    return problems


def _walk(value: Any, path: Path, look: Callable[[str, Path], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(member, (*path, key), look) for key, member in value.items()}
    if isinstance(value, list):
        return [_walk(member, (*path, index), look) for index, member in enumerate(value)]
    return _replaced(value, path, look) if isinstance(value, str) and "${" in value else value


def _replaced(text: str, path: Path, look: Callable[[str, Path], Any]) -> Any:
    if text.startswith("${") and text.find("}") == len(text) - 1:
        return look(text[2:-1], path)
    parts, rest = [], text
    while "${" in rest:
        before, _, rest = rest.partition("${")
        name, _, rest = rest.partition("}")
        value = look(name, path)
        parts += [before, str(value).lower() if isinstance(value, bool) else str(value)]
    return "".join([*parts, rest])
