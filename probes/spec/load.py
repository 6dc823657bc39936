"""Loading a spec: files, overrides and validation, with every problem at its place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from probes.digest import PROOF, canonical, spec_identity
from probes.errors import Problem, SpecError, StorageError, UsageError
from probes.plugins import granted
from probes.printable import counted, html_lines
from probes.spec.compose import gather, lay_defaults, problem, substitute
from probes.spec.cross_checks.spec_rules import faults_of
from probes.spec.models import VERSION, Spec
from probes.spec.override import override
from probes.spec.plain_data import plain
from probes.spec.problems import problems_of, shown
from probes.spec.spec_files import file_bytes, first_bytes, preset_path, similar_preset
from probes.spec.yaml.document import Document, Mark, Path

LATER_KEYS = ("ops",)
"""Keys of a probe that are new since the first release: a spec without them keeps its hash."""


@dataclass(frozen=True, repr=False)
class LoadedSpec:
    """A spec and its origin.

    Attributes:
        spec: the validated spec.
        source: the exact bytes of the first file.
        name: its name for messages.
        files: (name, SHA-256) of every file read, the first one first.
        overrides: the `path=value` texts that were applied.
        folder: where `extends` starts; None if there is no file.
        document: the places of keys and values.
        named: whether the spec states its name; otherwise the name is made from that of the file.
    """

    spec: Spec
    source: bytes
    name: str
    files: tuple[tuple[str, str], ...] = ()
    overrides: tuple[str, ...] = ()
    folder: FilePath | None = field(default=None, repr=False, compare=False)
    document: Document = field(default_factory=Document, repr=False, compare=False)
    named: bool = field(default=True, repr=False, compare=False)

    def __repr__(self) -> str:
        return f'<LoadedSpec "{self.name}": {counted(len(self.spec.probes), "probe")}>'

    def _repr_html_(self) -> str:
        return html_lines(self.source.decode(errors="replace"))

    @property
    def data(self) -> dict[str, Any]:
        """The resolved spec as plain data: extends, overrides, variables and defaults applied."""
        dumped: dict[str, Any] = self.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=False)
        dumped.pop("defaults", None)
        if not dumped["rules"]:
            del dumped["rules"]  # earlier releases did not have it
        for probe in dumped["probes"].values():
            for key in LATER_KEYS:
                if not probe[key]:
                    del probe[key]
        return dumped

    @property
    def resolved(self) -> bytes:
        """The resolved spec in canonical JSON."""
        return canonical(self.data)

    @property
    def resolved_sha256(self) -> str:
        """SHA-256 of the resolved spec."""
        return sha256(self.resolved).hexdigest()

    @property
    def identity_hash(self) -> str:
        """BLAKE3 of all keys that affect captured values: without sinks, rules, limits, durability, on_error and tolerance."""
        return self.identity_of(PROOF)

    def identity_of(self, proof: str) -> str:
        """`identity_hash` as a version of the proof defines it, for runs that an earlier release began."""
        return spec_identity(self.data, proof)

    def called(self, name: str) -> LoadedSpec:
        """The same spec under another name, if it does not state its own."""
        return self if self.named else replace(self, spec=self.spec.model_copy(update={"name": name}))

    def locate(self, path: Path) -> Problem:
        """A problem without code or message, at the place of a path; `.at(code=..., message=...)` completes it."""
        mark = self.document.values.get(path)
        block = mark is not None and mark.source[mark.column - 1 : mark.column] not in ("[", "{") and path in self.document.keys
        return problem(self.document, path, "", "", key=block and isinstance(self._at(path), dict | list))

    def _at(self, path: Path) -> Any:
        """The value at a path of the document."""
        found = self.document.data
        for part in path:
            found = found[part]
        return found


def load_spec(spec: Any, *, overrides: Sequence[str] = (), allow_plugins: Sequence[str] = ()) -> LoadedSpec:
    """Load a spec.

    Args:
        spec: path of a file, `preset:NAME`, a mapping, a Spec, or a LoadedSpec.
        overrides: `path=value` texts that override values of the files.
        allow_plugins: kinds of plug-ins that may be imported.

    Raises:
        SpecError: the spec is not valid; every problem is listed.
        StorageError: the file cannot be read.
        UsageError: a plug-in is allowed that is not installed.
    """
    if not allow_plugins:
        return _loaded(spec, overrides)
    with granted(allow_plugins):
        return _loaded(spec, overrides)


def _loaded(spec: Any, overrides: Sequence[str]) -> LoadedSpec:
    if isinstance(spec, LoadedSpec):
        return spec if not overrides else load_text(spec.source, spec.name, spec.folder, (*spec.overrides, *overrides))
    if isinstance(spec, Spec):
        return _from_mapping(_without_nulls(spec.model_dump(mode="json", by_alias=True, exclude_unset=True)), spec.name, overrides)
    if isinstance(spec, Mapping):
        return _from_mapping(spec, "spec", overrides)
    if not isinstance(spec, str | os.PathLike):
        raise UsageError(f"a spec is a path, preset:NAME, a mapping or a Spec, not a {type(spec).__name__}")
    name = os.fspath(spec)
    if name.startswith("preset:"):
        path = preset_path(name)
        if path is None:
            raise SpecError([Problem("missing-file", f"there is no preset `{name}`", similar_preset(name))])
        return load_text(file_bytes(path), name, path.parent, overrides)
    if "\n" in name:
        raise UsageError("a spec is a path, preset:NAME, a mapping or a Spec, not a text; pass `yaml.safe_load(text)`")
    path = FilePath(name)
    if path.suffix == ".py":
        raise UsageError(f'"{name}" is a Python file, and the spec comes first: SPEC.yaml {name}')
    if not path.exists():
        raise StorageError(f'spec "{name}" does not exist')
    return load_text(first_bytes(path), name, path.parent, overrides)


def _from_mapping(data: Mapping[str, Any], name: str, overrides: Sequence[str]) -> LoadedSpec:
    text = json.dumps(plain(data), ensure_ascii=False, indent=1).encode()
    return load_text(text, f"<{name}>", None, overrides)


def _without_nulls(data: Any) -> Any:
    """Plain data without keys that are None in Python."""
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    return [_without_nulls(value) for value in data] if isinstance(data, list) else data


def load_text(text: bytes, name: str, folder: FilePath | None, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Load a spec from its bytes.

    Args:
        text: the bytes of the file.
        name: its name for messages.
        folder: where `extends` starts; None if there is no file.
        overrides: `path=value` texts that override values of the file.

    Raises:
        SpecError: every problem is listed.
    """
    files: list[tuple[str, str]] = []
    document = gather(text, name, folder, files)
    if overrides:
        override(document, overrides)
    _version(document)
    named = "name" in document.data
    document.data.setdefault("name", _stem(name))
    written = document.copy()
    spec = _read(document)
    if spec is None:
        problems = problems_of(written)
        if not problems:
            raise AssertionError(f"BUG: the spec `{name}` was refused without a problem")
        raise SpecError(problems)
    return LoadedSpec(spec, text, name, tuple(files), tuple(overrides), folder, document, named)


def _stem(name: str) -> str:
    """A name made from a file name: characters that are not allowed become `-`."""
    stem = FilePath(name.removeprefix("preset:").strip("<>")).name.split(".")[0]
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in stem)[:64]
    return kept if kept[:1].isalpha() else "spec"


def _version(document: Document) -> None:
    """Refuse another version before anything else: its keys may mean something else."""
    version = document.data.get("version")
    if version is None or ("version",) in document.unreadable or (type(version) is int and version == VERSION):
        return
    if type(version) is int and version > VERSION:
        message = f"spec version {version} is newer than this program supports ({VERSION})"
        raise SpecError([problem(document, ("version",), "newer-version", message, "upgrade torch-probes")])
    message = f"spec version must be the whole number {VERSION}, got {shown(version)}"
    raise SpecError([problem(document, ("version",), "wrong-version", message, "write `version: 1`")])


def _read(document: Document) -> Spec | None:
    """The spec of a document; None if anything is wrong with it."""
    substitute(document)
    lay_defaults(document)
    if document.problems:
        return None
    try:
        spec = Spec.model_validate(document.data)
    except ValidationError:
        return None
    return spec if next(faults_of(spec), None) is None else None


__all__ = ["LoadedSpec", "Mark", "load_spec", "load_text"]
