"""Styles of loops around `probes.attach`, each with the clock of every call by hand."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from tests.loops.attached import Place, differences
from tests.loops.in_process import sealing_here


class Style(NamedTuple):
    """A loop by hand.

    Attributes:
        text: the loop; `call(MODE)` calls the model, `learn()` is backward and `optimizer.step()`.
        calls: phase, epoch, step, step of all epochs and microstep of each call; None for one of a step that is dropped.
        complete: whether each epoch is complete.
    """

    text: str
    calls: list[Place | None]
    complete: dict[int, bool | None]


STYLES = {
    "epochs_and_steps": Style(
        """
        for epoch in run.epochs(2):
            for batch in run.steps(range(2)):
                call("train"), learn()
            with run.phase("val"):
                call("no_grad")
        """,
        [
            *(("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("val", 0, 0, 0, 0)),
            *(("train", 1, 0, 2, 0), ("train", 1, 1, 3, 0), ("val", 1, 0, 1, 0)),
        ],
        {0: True, 1: True},
    ),
    "evaluation_before_each_batch_of_an_accumulated_item": Style(
        """
        with run.epoch(0):
            for batch in run.steps(range(2), accumulate=2):
                call("no_grad"), call("train"), learn()
        """,
        [("eval", 0, 0, 0, 0), ("train", 0, 0, 0, 0), ("eval", 0, 0, 0, 1), ("train", 0, 1, 1, 0)],
        {0: True},
    ),
    "gradient_of_a_training_step_that_comes_in_an_evaluation": Style(
        """
        try:
            with run.epoch(0):
                call("train")
                with run.phase("eval"):
                    with run.step():
                        call("train"), learn()
                raise Bad
        except Bad:
            pass
        """,
        [None, ("eval", 0, 0, 0, 0)],
        {0: False},
    ),
    "gradient_of_a_training_step_that_comes_in_an_evaluation_that_raises": Style(
        """
        with run.epoch(0):
            call("train")
            try:
                with run.phase("eval"):
                    with run.step():
                        call("train"), learn()
                        raise Bad
            except Bad:
                pass
        """,
        [("train", 0, 0, 0, 0), None],
        {0: None},
    ),
    "steps_within_a_phase": Style(
        """
        with run.epoch(0), run.phase("val"):
            for batch in run.steps(range(2)):
                call("eval"), call("eval")
        """,
        [("val", 0, 0, 0, 0), ("val", 0, 0, 0, 1), ("val", 0, 1, 1, 0), ("val", 0, 1, 1, 1)],
        {0: True},
    ),
    "one_step_within_a_phase": Style(
        """
        with run.epoch(0):
            with run.phase("eval"):
                with run.step():
                    call("no_grad")
                with run.step():
                    call("no_grad")
        """,
        [("eval", 0, 0, 0, 0), ("eval", 0, 1, 1, 0)],
        {0: True},
    ),
    "one_look_without_an_epoch": Style("call('no_grad')", [("eval", 0, 0, 0, 0)], {0: True}),
    "a_training_without_an_epoch": Style(
        "for i in range(3): call('train'), learn()",
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("train", 0, 2, 2, 0)],
        {0: True},
    ),
    "accumulation_by_items": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(3), accumulate=2):
                call("train")
                if i % 2 == 1 or i == 2: learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 0, 0, 1), ("train", 0, 1, 1, 0)],
        {0: True},
    ),
    "accumulation_without_items": Style(
        """
        with run.epoch(0):
            for i in range(4):
                call("train")
                if i % 2: learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 0, 0, 1), ("train", 0, 1, 1, 0), ("train", 0, 1, 1, 1)],
        {0: True},
    ),
    "validation_in_the_middle": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(2)):
                call("train"), learn()
                with run.phase("val"):
                    call("eval"), call("eval")
        """,
        [
            *(("train", 0, 0, 0, 0), ("val", 0, 0, 0, 0), ("val", 0, 1, 1, 0)),
            *(("train", 0, 1, 1, 0), ("val", 0, 2, 2, 0), ("val", 0, 3, 3, 0)),
        ],
        {0: True},
    ),
    "an_attack_before_each_update": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(2)):
                call("train")
                call("eval_grad")
                call("train"), learn()
        """,
        [
            *(("train", 0, 0, 0, 0), ("eval", 0, 0, 0, 0), ("train", 0, 0, 0, 1)),
            *(("train", 0, 1, 1, 0), ("eval", 0, 1, 1, 0), ("train", 0, 1, 1, 1)),
        ],
        {0: True},
    ),
    "gradients_in_eval_mode": Style(
        """
        with run.epoch(0):
            for i in range(2):
                call("eval_grad"), learn(step=False)
        """,
        [("eval", 0, 0, 0, 0), ("eval", 0, 1, 1, 0)],
        {0: True},
    ),
    "a_step_that_raises": Style(
        """
        with run.epoch(0):
            for i in range(3):
                try:
                    with run.step():
                        call("train"), learn()
                        if i == 1: raise Bad
                except Bad: pass
        """,
        [("train", 0, 0, 0, 0), None, ("train", 0, 2, 2, 0)],
        {0: True},
    ),
    "a_phase_that_raises": Style(
        """
        with run.epoch(0):
            try:
                with run.phase("val"):
                    for i in run.steps(range(3)):
                        call("eval")
                        if i == 1: raise Bad
            except Bad: pass
            call("train"), learn()
        """,
        [("val", 0, 0, 0, 0), None, ("train", 0, 0, 0, 0)],
        {0: True},
    ),
    "an_interrupt_within_the_run": Style(
        """
        try:
            for epoch in run.epochs(3):
                for i in run.steps(range(3)):
                    call("train"), learn()
                    if (epoch, i) == (1, 1): raise KeyboardInterrupt
        except KeyboardInterrupt: pass
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("train", 0, 2, 2, 0), ("train", 1, 0, 3, 0), None],
        {0: True, 1: False},
    ),
    "left_by_break_in_the_middle": Style(
        """
        for epoch in run.epochs(2):
            for i in run.steps(range(3)):
                call("train"), learn()
                if i == 1: break
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("train", 1, 0, 2, 0), ("train", 1, 1, 3, 0)],
        {0: False, 1: False},
    ),
    "early_stopping": Style(
        """
        for epoch in run.epochs(5):
            for i in run.steps(range(2)):
                call("train"), learn()
            if epoch == 1: break
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("train", 1, 0, 2, 0), ("train", 1, 1, 3, 0)],
        {0: True, 1: True},
    ),
    "a_gradient_that_comes_late": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(4)):
                call("train")
                if i % 2: learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0), ("train", 0, 2, 2, 0), ("train", 0, 3, 3, 0)],
        {0: True},
    ),
    "asides_change_nothing": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(2)):
                for kind in ("other", "copy", "vmap", "trace", "foreign_step"):
                    aside(kind)
                call("train"), learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0)],
        {0: True},
    ),
    "a_tracer_first": Style(
        """
        aside("trace"), aside("vmap")
        with run.epoch(0):
            for i in range(2):
                call("train"), learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 1, 1, 0)],
        {0: True},
    ),
    "threads_and_bound_calls": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(2)):
                call("train", way="thread"), call("train", way="bound"), call("train", way="functional"), learn()
        """,
        [("train", 0, step, step, microstep) for step in range(2) for microstep in range(3)],
        {0: True},
    ),
    "a_forward_that_raises_within_a_step": Style(
        """
        with run.epoch(0):
            for i in run.steps(range(2)):
                call("train", fails=True)
                call("train"), learn()
        """,
        [("train", 0, 0, 0, 0), ("train", 0, 0, 0, 1), ("train", 0, 1, 1, 0), ("train", 0, 1, 1, 1)],
        {0: True},
    ),
}


@pytest.mark.filterwarnings("ignore")  # jit.trace warns
@pytest.mark.parametrize("name", STYLES)
def test_a_loop_around_attach_is_captured_as_its_clock_by_hand_says(name: str, tmp_path: Path) -> None:
    style = STYLES[name]
    text = dedent(style.text)
    with sealing_here():
        wrong = differences(text, style.calls, style.complete, tmp_path / "run")
    if wrong:
        pytest.fail("\n".join([text, *wrong]), pytrace=False)
