"""The rooms of the package: no circle of imports, small folders, and tests in the folder of the room that they test."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.pages import ROOT, parsed
from tests.warm import programs

PACKAGE = ROOT / "probes"
MOST_FILES = 16
MOST_FOR_THE_TENSOR = 6  # files from the hook to the journal
MOST_FOR_ALL = 128  # from attach to show, for one probe on one module
MOST_AT_THE_TOP = 18  # entry points, and the small nouns that every room uses
ONE_FILE_PER_KIND = {"commands", "transforms", "edits", "sinks", "presets"}  # as many files as there are verbs or kinds
AT_THE_TOP = {
    ".gitignore",
    ".pre-commit-hooks.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "constraints.txt",
    "pyproject.toml",
}
ALL_OF_IT = {"conformance", "examples", "loops", "release_corpus", "specs", "torture"}  # tests of the whole, not of one room


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports anywhere in it, also in functions and for type checking only."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


@cache
def graph() -> dict[str, set[str]]:
    """Module -> modules of the package that it imports."""
    return {name: {found for found in _imports(path) if found in MODULES and found != name} for name, path in MODULES.items()}


def _reachable(start: str) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph()[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph()[name]
    return seen


def test_no_module_imports_itself_through_other_modules() -> None:
    circles = sorted(name for name in MODULES if name in _reachable(name))
    assert not circles, f"these modules are part of a circle of imports: {circles}"


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()}), ids=lambda folder: folder.name)
def test_a_folder_is_small_enough_to_be_read_at_a_glance(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    if folder.name not in ONE_FILE_PER_KIND:
        most = MOST_AT_THE_TOP if folder == PACKAGE else MOST_FILES
        assert len(files) <= most, f"{folder.relative_to(ROOT)} has {len(files)} files; make two folders of it"


def test_every_folder_of_tests_belongs_to_a_room() -> None:
    rooms = {path.parent.relative_to(PACKAGE) for path in MODULES.values()}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        assert folder in rooms or folder.parts[0] in ALL_OF_IT, f"{path.relative_to(ROOT)} is in no room of the package"


def test_every_room_has_tests() -> None:
    for room in sorted({path.parent for path in MODULES.values()} - {PACKAGE}):
        tests = ROOT / "tests" / room.relative_to(PACKAGE)
        assert any(tests.rglob("test_*.py")) or any(tests.parent.glob("test_*.py")), f"{room.relative_to(ROOT)} has no tests"


@pytest.mark.parametrize("family", ["transforms", "edits", "sinks"])
def test_every_kind_has_a_test_file_of_the_same_name(family: str) -> None:
    for path in sorted((PACKAGE / family).glob("*.py")):
        if path.name != "__init__.py":
            assert (ROOT / "tests" / family / f"test_{path.name}").exists(), f"tests/{family}/test_{path.name} is missing"


def test_the_top_of_the_repository_has_the_files_that_belong_there_and_no_logs() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git repository")
    assert {name for name in listed.stdout.splitlines() if "/" not in name} == AT_THE_TOP


@pytest.fixture(scope="module")
def traversed() -> str:
    pytest.importorskip("torch", reason="a capture needs it")
    return programs.run("-m", "benchmarks.traversed", "--functions", cwd=ROOT).stdout


def test_one_capture_is_followed_through_few_files(traversed: str) -> None:
    said = traversed.partition("\nfunctions of ")[0]
    counts = {part: int(files) for part, files in re.findall(r"^(.*): (\d+) files", said, re.MULTILINE)}
    assert counts["the tensor of step 0"] <= MOST_FOR_THE_TENSOR, said
    assert counts["all"] <= MOST_FOR_ALL, f"make what a spec does not use only where it does; {said}"


def test_the_way_of_one_capture_is_described_in_the_order_in_which_it_runs(traversed: str) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition("## The way of one capture\n")[2].partition("\n## ")[0]
    described = [f"{file}:{function}" for file, function in re.findall(r"\| `([^`]+\.py)`: `([^`]+)` \|", section)]
    listed = traversed.partition("\nfunctions of ")[2].splitlines()
    ran = list(dict.fromkeys(line.strip() for line in listed if line.startswith("  ")))
    assert len(described) > 30
    assert set(described) <= set(ran), f"these do not run: {sorted(set(described) - set(ran))}"
    assert described == sorted(described, key=ran.index)
