"""Programs that are made up: each capture is where a clock kept by hand says, with the bytes that hooks by hand saw."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conftest import SEED
from tests.loops.attached import faults, source
from tests.loops.generator import made, programs, scripts, seeded_script
from tests.loops.in_process import sealing_here
from tests.loops.programs import Program
from tests.loops.scripts_made import Script, Written
from tests.loops.trials import Trials
from tests.loops.truth import Truth

pytestmark = pytest.mark.filterwarnings("ignore")  # jit.trace warns

FEW, MANY, SCRIPTS = (settings(max_examples=count, suppress_health_check=list(HealthCheck)) for count in (60, 3000, 400))


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tmp_path_factory.mktemp("trials"))


def check(program: Program) -> None:
    """Run a program around `attach`; where something is wrong, show it as source."""
    folder = Path(tempfile.mkdtemp(prefix="loops-"))
    try:
        with sealing_here():
            wrong = faults(program, folder / "run")
    finally:
        shutil.rmtree(folder)
    if wrong:
        pytest.fail("\n".join(["", source(program), *wrong]), pytrace=False)


def check_script(truth: Truth, trials: Trials) -> None:
    """Run a script under `probes run`; where something is wrong, show what was chosen, its text and its truth."""
    if wrong := trials.misfits(truth) or trials.faults(truth):
        pytest.fail("\n".join(["", truth.title, truth.text, str(truth.data), *wrong]), pytrace=False)


@FEW
@given(programs())
def test_an_attached_program_is_captured_as_the_clock_by_hand_says(program: Program) -> None:
    check(program)


@pytest.mark.parametrize("number", range(6))
def test_a_generated_script_is_captured_as_the_clock_by_hand_says(number: int, trials: Trials) -> None:
    check_script(seeded_script(6 * SEED + number), trials)


AHEAD_TWICE = Script(
    epochs=1,
    batches=2,
    feed="ahead",
    accumulate=1,
    rest=True,
    updates=2,
    calls=1,
    apart=False,
    before="",
    optimizers="one",
    validation="",
    views=1,
    first="",
    ending="",
    step="optimizer",
)


def test_a_batch_that_was_pulled_ahead_before_the_first_call_is_one_step_of_several_updates(trials: Trials) -> None:
    check_script(made(Written(AHEAD_TWICE)), trials)


@pytest.mark.torture
@MANY
@given(programs())
def test_thousands_of_attached_programs_are_captured_as_the_clock_by_hand_says(program: Program) -> None:
    check(program)


@pytest.mark.torture
@SCRIPTS
@given(truth=scripts())
def test_hundreds_of_generated_scripts_are_captured_as_the_clock_by_hand_says(truth: Truth, trials: Trials) -> None:
    check_script(truth, trials)
