"""The files of specs: which ones may be read, how a spec differs from other YAML files, and the presets."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from os.path import normpath
from pathlib import Path as FilePath

from probes.errors import FileRefused, SpecError, StorageError
from probes.plain_file import regular
from probes.spec.yaml.reader import MAX_BYTES, too_large

_KEYS = "probes|extends|vars|defaults|sinks|limits|models|tolerance|clock|provenance|on_error|durability|allow_edits|rules"
_NAMES = {"version", "name", "about"}  # keys that other YAML files have, too
_TOP = re.compile(rb"^[\"']?([^\s#\"':-][^\s\"':]*)[\"']?\s*:", re.MULTILINE)
_SPEC_KEY = re.compile(rf"^[\"']?(?:{_KEYS})[\"']?\s*:".encode(), re.MULTILINE)
_SCHEMA = re.compile(r"\A(?:---[^\n]*\n|%[^\n]*\n|[ \t]*(?:#[^\n]*)?\n)*#[^\n]*probe-spec\.v\d")
_PROBES = re.compile(r"""^(?:probes|"probes"|'probes')[ \t]*:""", re.MULTILINE)
_VERSION = re.compile(r"""^(?:version|"version"|'version')[ \t]*:[ \t]*\d+[ \t]*(?:#[^\n]*)?$""", re.MULTILINE)
_TARGETS = re.compile(r"""^[ \t-].*?\b(?:modules|tensors)["']?[ \t]*:""", re.MULTILINE)
_BRACES = re.compile(r"""\A\s*\{(?=[^\n]*?["']?probes["']?\s*:|(?:.|\n)*?^\s*["']?probes["']?\s*:)""", re.MULTILINE)
_BRACES_VERSION = re.compile(r"""["']?version["']?\s*:\s*\d+\s*[,}]""")


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
    if path.is_symlink() and not has_spec_keys(text):
        raise StorageError(f'"{path}" is a link to a file that is not a spec: it has no key of a spec at its top level')
    return text


def is_spec(text: bytes) -> bool:
    """Whether a YAML file is meant as a spec.

    A spec names the schema `probe-spec.v1` in its first comment, or has `probes:` at the top level with either `version:` and a whole
    number next to it, or `modules:` or `tensors:` below. A version such as `1.2.3` belongs to another program.

    Args:
        text: the bytes of the file; may be malformed.
    """
    lines = text.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if _SCHEMA.search(lines):
        return True
    if _BRACES.search(lines):
        return bool(_BRACES_VERSION.search(lines))
    return bool(_PROBES.search(lines) and (_VERSION.search(lines) or _TARGETS.search(lines)))


def has_spec_keys(text: bytes) -> bool:
    """Whether a text has a top-level key that only specs have, or only keys that specs have."""
    if is_spec(text):
        return True
    keys = {key.decode(errors="replace") for key in _TOP.findall(text)}
    return _SPEC_KEY.search(text) is not None or (bool(keys) and keys <= _NAMES)


def extended_root(folder: FilePath) -> FilePath:
    """The folder that contains all files that a spec may extend: its repository; without one its own folder."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def why_outside(path: FilePath, root: FilePath) -> str:
    """The reason why a file may not be extended, whether or not it exists; an empty text if it may."""
    place = FilePath(normpath(FilePath.cwd() / path.parent.resolve() / path.name))
    if not place.is_relative_to(root):
        return f'is outside of "{root}", where this spec is'
    named = FilePath(normpath(FilePath.cwd() / path))
    links = [below for below in (named, *named.parents) if below.is_relative_to(root) and below != root and below.is_symlink()]
    return "is a link, or in a folder that is a link" if links else ""


def similar_file(base: str, path: FilePath) -> str:
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
