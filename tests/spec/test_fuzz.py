"""Any file is read as a spec or gives problems with declared codes, soon and without a traceback."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.pages import ROOT
from tests.regenerate import SPECS
from tests.spec import fuzz

MOST_MEMORY = 200 << 20


def tried(kind: str, count: int) -> None:
    settings(max_examples=count, suppress_health_check=list(HealthCheck))(given(fuzz.KINDS[kind])(fuzz.told))()


@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_hundreds_of_texts_are_specs_or_refused(kind: str) -> None:
    tried(kind, 150)


@pytest.mark.torture
@pytest.mark.parametrize("kind", fuzz.KINDS)
def test_a_hundred_thousand_texts_are_specs_or_refused(kind: str) -> None:
    tried(kind, 25_000)


def guided(runs: int, corpus: Path) -> str:
    corpus.mkdir()
    command = [sys.executable, "-m", "tests.spec.fuzz", str(runs), str(corpus)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


@pytest.mark.torture
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_a_hundred_thousand_texts_that_coverage_leads_to_are_specs_or_refused(tmp_path: Path) -> None:
    guided(100_000, tmp_path / "corpus")


def test_no_wrong_spec_takes_more_than_200_mb() -> None:
    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))

    names = sorted(path.name for path in (SPECS / "invalid").glob("*.yaml"))
    command = [sys.executable, "-m", "probes", "check", "--json", *names]
    done = subprocess.run(command, cwd=SPECS / "invalid", capture_output=True, text=True, check=False, preexec_fn=bound)
    assert done.returncode == 2, done.stderr
