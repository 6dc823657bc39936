"""What import-linter holds of the source, held once more of running interpreters."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "h5py")
CHECKING = ("probes", "probes.spec.yaml.reader", "probes.spec", "probes.cli", "probes.commands.check")
READING = (
    "probes.reader.run",
    "probes.run_directory.seal",
    "probes.proof.verify",
    "probes.proof.diff",
    *(f"probes.commands.{verb}" for verb in ("ls", "show", "verify", "diff", "recover")),
)


def imported_by(*words: str) -> set[str]:
    """The heavy packages that an interpreter has imported after running some code or module."""
    code = f"import sys, runpy; sys.argv = ['probes', *{words[1:]!r}]\n"
    code += (
        "try: runpy.run_module('probes', run_name='__main__')\nexcept SystemExit: pass\n"
        if words[0] == "probes"
        else f"import {words[0]}\n"
    )
    code += f"print('imported:', *(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize("module", CHECKING)
def test_checking_imports_neither_torch_nor_numpy_nor_h5py(module: str) -> None:
    assert imported_by(module) == set()


@pytest.mark.parametrize("module", READING)
def test_reading_never_imports_torch(module: str) -> None:
    assert "torch" not in imported_by(module)


@pytest.mark.parametrize("words", [("--help",), ("check", "examples/digits/probe.yaml"), ("--version",)], ids=" ".join)
def test_light_commands_import_nothing_heavy(words: tuple[str, ...]) -> None:
    assert imported_by("probes", *words) == set()
