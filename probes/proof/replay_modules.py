"""The files of a directory that a script would import, found by parsing sources: nothing is imported or run."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from probes.errors import FileRefused, StorageError, UsageError
from probes.plain_file import read_plain

LARGEST_SOURCE = 4 << 20
MOST_FILES = 4096
PACKAGE = Path(__file__).resolve().parents[1]


def imported_below(script: Path, directory: Path) -> tuple[Path, ...]:
    """The files that a script imports, directly or indirectly, as far as they are found next to it or in the directory.

    Args:
        script: the file that is run.
        directory: where it is run; files that are not below it, links resolved, are left out.

    Returns:
        Paths, without the script itself, sorted.
    """
    roots, below = (script.parent, directory), directory.resolve()
    found: set[Path] = set()
    waiting = deque([script])
    while waiting and len(found) < MOST_FILES:
        file = waiting.popleft()
        for path in _named(file, roots):
            if path not in found and path.resolve().is_relative_to(below):
                found.add(path)
                waiting.append(path)
    return tuple(sorted(found - {script}))


def _named(file: Path, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The files of the modules in the import statements of a source."""
    try:
        tree = ast.parse(read_plain(file.resolve(), LARGEST_SOURCE))
    except (ValueError, SyntaxError, RecursionError, MemoryError, FileRefused, StorageError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name, roots)
        elif isinstance(node, ast.ImportFrom):
            base = roots if not node.level else (file.parents[node.level - 1],) if node.level <= len(file.parents) else ()
            for name in (node.module or "", *(f"{node.module or ''}.{alias.name}".lstrip(".") for alias in node.names)):
                yield from _files(name, base)


def _files(name: str, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The files of a module and of the packages around it, in the first of the folders that has one."""
    parts = [part for part in name.split(".") if part]
    for root in roots:
        candidates = [root.joinpath(*parts[:count], "__init__.py") for count in range(1, len(parts) + 1)]
        files = [
            path for path in (*candidates, root.joinpath(*parts).with_suffix(".py") if parts else root / "__init__.py") if _is_file(path)
        ]
        if files:
            yield from files
            return


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def in_place_of_others(directory: Path) -> tuple[str, ...]:
    """The names in a directory that Python imports instead of its own modules, or of packages that probes uses.

    Raises:
        UsageError: one would be imported instead of probes itself, which would then not be what runs.
    """
    own = directory / "probes"
    if (_is_file(directory / "probes.py") or _is_file(own / "__init__.py")) and own.resolve() != PACKAGE:
        raise UsageError(f'"{directory}" has a module `probes`, which would run instead of this one; rename it, or give --directory')
    used = {*sys.stdlib_module_names, "torch", "numpy", "pydantic", "pydantic_core", "yaml", "h5py", "click", "rich", "blake3", "einops"}
    names = (path for path in sorted(directory.iterdir()) if path.stem in used)
    return tuple(path.name for path in names if path.suffix == ".py" or _is_file(path / "__init__.py"))
