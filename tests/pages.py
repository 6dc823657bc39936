"""The pages of the documentation, and the scripts next to them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "docs/tutorials", "examples/*")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/*.md")))]


def script(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    return module(f"docs/{name}.py")


def module(path: str) -> ModuleType:
    """A script, by its path in the repository, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
