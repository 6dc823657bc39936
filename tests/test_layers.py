"""The contracts of pyproject.toml on imports, checked in running interpreters as well as in the source."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from grimp import build_graph

from probes.cli import verbs

HEAVY = ("torch", "numpy", "h5py")
PROJECT = Path(__file__).parents[1]
FORBIDDEN = {
    contract["name"]: (contract["source_modules"], contract["forbidden_modules"])
    for contract in tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    if contract["type"] == "forbidden"
}
(READING,) = (modules for modules, packages in FORBIDDEN.values() if packages == ["torch"])
LIGHT = (("--help",), ("--version",), ("check", "examples/digits/probe.yaml"))


def below(module: str) -> list[str]:
    """A module, and all modules in it where it is a package."""
    folder = PROJECT.joinpath(*module.split("."))
    names = [".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in sorted(folder.rglob("*.py"))]
    return [module, *(name.removesuffix(".__init__") for name in names if not name.endswith("__main__"))]


def imported_by(code: str) -> set[str]:
    """The heavy packages that an interpreter has imported after running some code."""
    code += f"\nprint('imported:', *(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_an_interpreter_that_imports_the_modules_of_a_contract_has_none_of_its_forbidden_packages(contract: str) -> None:
    modules, packages = FORBIDDEN[contract]
    imports = "\n".join(f"import {name}" for module in modules for name in below(module))
    assert not imported_by(imports) & set(packages)


def test_the_contract_on_torch_lists_every_verb_that_does_not_reach_torch() -> None:
    graph = build_graph("probes", include_external_packages=True, exclude_type_checking_imports=True)
    modules = {verb.place.partition(":")[0] for verb in verbs().values()}
    without_torch = {module for module in modules if graph.find_shortest_chain(module, "torch") is None}
    assert without_torch == {module for module in READING if module.startswith("probes.commands.")}


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_light_commands_import_nothing_heavy(words: tuple[str, ...]) -> None:
    run = "import runpy\ntry: runpy.run_module('probes', run_name='__main__')\nexcept SystemExit: pass"
    assert imported_by(f"sys.argv = ['probes', *{words!r}]\n{run}") == set()
