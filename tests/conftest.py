"""Settings of every test, for any way of starting the tests."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from probes.provenance import packages

SEED = int(os.environ.get("PROBES_TEST_SEED", "0"))
"""What every test's random numbers begin with: the same in each `make test`, another one in each `make torture`."""

os.environ.setdefault("PROBES_KEEP_SOURCES", "0")  # the sources of all tests, in each of their runs, would fill the disk
os.environ.setdefault("GIT_CEILING_DIRECTORIES", str(Path(__file__).parents[1]))  # each run would ask for the state of this repository

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", database=None, deadline=None, print_blob=True)
settings.load_profile("fresh" if SEED else "fixed")


@pytest.hookimpl(tryfirst=True)  # before the plug-ins of hypothesis and pytest-randomly look at their options
def pytest_configure(config: pytest.Config) -> None:
    """Let programs that tests start receive signals, which a shell's background job or `nohup` makes all below it ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    config.option.randomly_reset_seed = False  # it orders the tests; their numbers come from SEED
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from tests.warm import programs

        programs.share()
    if SEED and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SEED)


LONG_MODULES = (
    "test_torture",
    "test_scripts",
    "test_generated",
    "test_same_roots",
    "test_ci_page",
    "test_create",
    "test_readme",
    "test_memory",
)


SEALED_HERE = (
    "commands",
    "conformance",
    "edits",
    "hooks",
    "integrations",
    "plan",
    "proof",
    "provenance",
    "report",
    "runner",
    "script",
    "testing",
    "transforms",
    "test_edits_page",
    "test_inside_page",
    "test_presets",
    "test_questions",
    "test_sinks_page",
)
WITH_A_SEALER = (
    "test_disk_space",
    "test_ending",
    "test_flat",
    "test_forks",
    "test_internal_errors",
    "test_launch",
    "test_memory",
    "test_ranks",
    "test_replay",
    "test_resume",
    "test_segments",
    "test_sink_sessions",
)


@pytest.fixture(autouse=True, scope="module")
def sealing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seal epochs in this process where the sealer's is not what is tested: starting it takes ten times as long as a small run."""
    place = request.path.relative_to(Path(__file__).parent)
    if place.with_suffix("").parts[0] not in SEALED_HERE or place.stem in WITH_A_SEALER:
        yield
        return
    from tests.loops.in_process import sealing_here

    with sealing_here():
        yield


@pytest.fixture(autouse=True, scope="module")
def recorded_code(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count the tests' modules as installed where the record of a program's code is not what is tested: each run would digest all."""
    place = request.path.relative_to(Path(__file__).parent)
    if place.parts[0] == "provenance":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        known = packages._installed()
        patch.setattr(packages, "_installed", lambda: (*known, f"{Path(__file__).parent}{os.sep}"))
        packages.is_installed.cache_clear()
        yield
    packages.is_installed.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def no_end_of_this_process() -> Iterator[None]:
    """Let programs that tests execute in this process end without waiting for its threads, after which no executor takes work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("probes.script.program.join_threads", lambda: None)
        yield


@pytest.hookimpl(trylast=True)  # after pytest-randomly has shuffled them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules that take longest first, so that no worker is left alone with one of them at the end."""
    places = {name: place for place, name in enumerate(LONG_MODULES)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through all tests and libraries again, which takes half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """End the process whose forks were the tests' programs."""
    if (programs := sys.modules.get("tests.warm.programs")) is not None:
        programs.close()


def pytest_report_header() -> str:
    """Say what seed repeats this run."""
    return f"random numbers: PROBES_TEST_SEED={SEED}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin every test with the same random numbers, those of its module's fixtures included, in whatever order the tests run."""
    random.seed(SEED)
    for library, seed in (("numpy.random", "seed"), ("torch", "manual_seed")):
        if (module := sys.modules.get(library)) is not None:
            getattr(module, seed)(SEED % 2**32)


@pytest.fixture
def greeting(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `sitecustomize` that prints when an interpreter starts, as those of clusters do; for all that this process starts."""
    place = tmp_path_factory.mktemp("site") / "sitecustomize.py"
    place.write_text("import sys\nprint('welcome')\nsys.stdout.write('no newline')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(place.parent), os.environ.get("PYTHONPATH")])))
    return place
