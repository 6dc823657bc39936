"""Functions of the user in a spec: code of files that are allowed by name, and functions that the program gives."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from probes.errors import Problem, SpecError, UsageError, nearest
from probes.spec import LoadedSpec
from probes.spec.spec_files import file_bytes
from probes.transforms.python import PythonFunction

LARGEST_CODE = 16 << 20
Functions = Mapping[str, Callable[[Any], Any]]


def with_functions(loaded: LoadedSpec, allow_code: Sequence[str] = (), functions: Functions | None = None) -> LoadedSpec:
    """The spec with the functions of its `python` transforms, as far as these are allowed or given.

    Args:
        loaded: the spec.
        allow_code: paths of the files that may be run, relative to the working directory or to the spec.
        functions: functions of the program by name.

    Raises:
        UsageError: a file or a function is not used by the spec, or a file raises.
        SpecError: a file has no such function, or is not the one that the spec says.
        StorageError: a file cannot be read.
    """
    if not allow_code and not functions:
        return loaded
    return _OwnCode(loaded, allow_code, functions or {}).resolved()


class _OwnCode:
    """The allowed files and given functions of one spec."""

    def __init__(self, loaded: LoadedSpec, allow_code: Sequence[str], functions: Functions) -> None:
        self.loaded = loaded
        self.allowed = tuple(allow_code)
        self.functions = functions
        self.used: set[str] = set()
        self.files: dict[str, str] = {}
        self.modules: dict[str, ModuleType] = {}
        self.problems: list[Problem] = []

    def resolved(self) -> LoadedSpec:
        """The spec with its functions."""
        probes = dict(self.loaded.spec.probes)
        for name, probe in probes.items():
            places = [("probes", name, "transforms", index) for index in range(len(probe.transforms))]
            bound = tuple(self.bound(one, at) for one, at in zip(probe.transforms, places, strict=True))
            probes[name] = probe.model_copy(update={"transforms": bound})
        if self.problems:
            raise SpecError(self.problems)
        self.refuse_unused()
        spec = self.loaded.spec.model_copy(update={"probes": probes})
        return replace(self.loaded, spec=spec, files=(*self.loaded.files, *self.files.items()))

    def bound(self, transform: Any, at: tuple[str | int, ...]) -> Any:
        """A transform with its function; the transform itself if it has none, or if that is not allowed."""
        if not isinstance(transform, PythonFunction):
            return transform
        if not transform.file:
            function = self.functions.get(transform.name)
            self.used.add(transform.name)
            return transform if function is None else transform.bound_to(function, _digest_of(function))
        allowed = next((one for one in self.allowed if self.is_same(one, transform.file)), None)
        if allowed is None:
            return transform
        self.used.add(allowed)
        module = self.module(transform.file)
        digest, function = self.files[transform.file], getattr(module, transform.name, None)
        if transform.sha256 not in (None, digest):
            self.refuse(
                at, "code-differs", f'"{transform.file}" has SHA-256 {digest[:12]}, and the spec says {str(transform.sha256)[:12]}', ""
            )
        elif not callable(function):
            known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            self.refuse(at, "unknown-function", f'"{transform.file}" has no function `{transform.name}`', nearest(transform.name, known))
        else:
            return transform.bound_to(function, digest)
        return transform

    def refuse(self, at: tuple[str | int, ...], code: str, message: str, hint: str) -> None:
        """Add a problem at the name of a function."""
        self.problems.append(replace(self.loaded.locate((*at, "function")), code=code, message=message, hint=hint))

    def path(self, file: str) -> Path:
        """The path of a file of the spec."""
        return (self.loaded.folder or Path.cwd()) / file

    def is_same(self, allowed: str, file: str) -> bool:
        """Whether an allowed path is that of a file of the spec."""
        return allowed == file or Path(allowed).resolve() == self.path(file).resolve()

    def module(self, file: str) -> ModuleType:
        """The module of a file; it is run once, from the bytes whose digest is recorded."""
        if file in self.modules:
            return self.modules[file]
        path = self.path(file)
        source = file_bytes(path, LARGEST_CODE)
        self.files[file] = sha256(source).hexdigest()
        module = ModuleType(f"probes_code_{path.stem}_{self.files[file][:12]}")
        module.__file__ = str(path.resolve())
        sys.modules[module.__name__] = module  # so that its source is recorded and kept like those of other modules
        try:
            exec(compile(source, str(path), "exec"), vars(module))
        except Exception as error:  # the user's code may raise anything
            raise UsageError(f'"{path}" cannot be run: {type(error).__name__}: {error}') from error
        self.modules[file] = module
        return module

    def refuse_unused(self) -> None:
        """Refuse allowed files and given functions without effect.

        Raises:
            UsageError: the spec does not use a file or a function.
        """
        wanted = [one for probe in self.loaded.spec.probes.values() for one in probe.transforms if isinstance(one, PythonFunction)]
        for file in self.allowed:
            if file not in self.used:
                raise UsageError(
                    f'the spec runs no code of "{file}"; {nearest(file, [one.file for one in wanted]) or "remove `--allow-code`"}'
                )
        for name in self.functions:
            if name not in self.used:
                raise UsageError(f"the spec uses no function `{name}`; {nearest(name, [one.name for one in wanted]) or 'remove it'}")


def _digest_of(function: Callable[[Any], Any]) -> str | None:
    """SHA-256 of the source of a function; None if Python has no source."""
    try:
        return sha256(inspect.getsource(function).encode()).hexdigest()
    except (OSError, TypeError):
        return None
