"""The pages of the documentation, and the scripts next to them."""

from __future__ import annotations

import ast
import importlib.util
import re
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "docs/tutorials", "examples/*")
PAGES = [ROOT / "README.md", *(page for folder in FOLDERS for page in sorted(ROOT.glob(f"{folder}/*.md")))]


@cache
def parsed(path: Path) -> ast.Module:
    """A Python file as a tree; every test of the sources reads the same one."""
    return ast.parse(path.read_text(encoding="utf-8"))


DECIMAL = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


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


def agree(shown: str, now: str) -> bool:
    """Whether two texts say the same; a decimal number may differ by one of its last digit, since machines round otherwise."""
    there, here = DECIMAL.findall(shown), DECIMAL.findall(now)
    return DECIMAL.split(shown) == DECIMAL.split(now) and all(map(_close, there, here))


def _close(shown: str, now: str) -> bool:
    there, here = Decimal(shown), Decimal(now)
    digit = Decimal(1).scaleb(max(int(there.as_tuple().exponent), int(here.as_tuple().exponent)))  # "0.5" may stand for 0.50
    return abs(there - here) <= digit
