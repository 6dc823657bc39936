"""What a step, a microstep, a phase and an epoch are, in the loops people write."""

from __future__ import annotations

from typing import Any

import pytest

from probes.errors import UsageError
from probes.hooks.capture.run_state import RunState
from probes.runner.schedule import Schedule
from probes.runner.timeline import Timeline


class Log:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def epoch_begins(self, epoch: int) -> None:
        self.lines.append(f"epoch {epoch}")

    def epoch_ends(self, epoch: int, complete: bool, reason: str) -> None:
        self.lines.append(f"end {epoch}" + ("" if complete else f" {reason}"))

    def boundary(self) -> None:
        pass

    def step_pauses(self) -> None:
        pass

    def step_resumes(self) -> None:
        pass

    def step_ends(self, phase: str, step: int, keep: bool, annex: dict[str, Any]) -> None:
        self.lines.append(f"{phase} {step}" + ("" if keep else " dropped") + (f" {annex['ids']}" if annex else ""))

    @property
    def steps(self) -> list[str]:
        return [line for line in self.lines if "epoch" not in line and not line.startswith("end")]


def timeline(**options: Any) -> tuple[Timeline, Log, RunState]:
    log, moment = Log(), RunState()
    return Timeline(moment, Schedule(0), log, **options), log, moment


def call(time: Timeline, phase: str = "train") -> None:
    time.enter(phase)
    time.leave()


def test_an_item_of_the_loop_is_a_step_whatever_number_of_calls_it_makes() -> None:
    time, log, moment = timeline()
    for _ in range(2):
        time.begin_item()
        call(time)
        call(time)
        assert moment.microstep == 1
    time.end_step()
    assert log.lines == ["epoch 0", "train 0", "train 1"]


def test_every_call_of_phase_eval_is_a_step_of_its_own_and_is_committed_at_once() -> None:
    time, log, _ = timeline()
    time.begin_epoch(0)
    for _ in range(3):
        call(time, "eval")
    assert log.steps == ["eval 0", "eval 1", "eval 2"]


def test_an_evaluation_inside_an_item_does_not_end_the_item() -> None:
    time, log, moment = timeline()
    time.begin_item()
    call(time)
    call(time, "eval")
    call(time)
    assert (moment.phase, moment.step, moment.microstep) == ("train", 0, 1)
    time.end_step()
    assert log.steps == ["eval 0", "train 0"]


def test_an_item_whose_calls_are_in_eval_mode_is_a_step_of_phase_eval() -> None:
    time, log, moment = timeline()
    for _ in range(2):
        time.begin_item(ids=["a"])
        call(time, "eval")
        call(time, "eval")
        assert moment.microstep == 1
    time.end_step()
    assert log.steps == ["eval 0 ['a']", "eval 1 ['a']"]


def test_a_step_whose_body_raised_is_dropped() -> None:
    time, log, _ = timeline()
    time.begin_item()
    call(time)
    time.end_epoch(complete=False, reason="exception: ValueError")
    assert log.lines == ["epoch 0", "train 0 dropped", "end 0 exception: ValueError"]


def test_an_item_without_a_call_of_the_model_is_not_a_step() -> None:
    time, log, _ = timeline()
    time.begin_item()
    time.begin_item()
    call(time)
    time.end_step()
    assert log.steps == ["train 0"]


def test_a_named_phase_wins_over_what_the_model_says() -> None:
    time, log, moment = timeline()
    time.begin_epoch(0)
    time.name("eval")
    time.enter("train")
    assert moment.phase == "eval"
    time.leave()
    time.unname()
    assert log.steps == ["eval 0"]


def test_steps_count_from_zero_in_every_epoch_and_totals_go_on() -> None:
    time, log, _ = timeline()
    for epoch in range(2):
        time.begin_epoch(epoch)
        for _ in range(2):
            time.begin_item()
            call(time)
        time.end_epoch()
    assert log.lines == ["epoch 0", "train 0", "train 1", "end 0", "epoch 1", "train 0", "train 1", "end 1"]
    assert time.totals["train"] == 4


def test_an_epoch_that_is_over_is_not_begun_again() -> None:
    time, _, _ = timeline()
    time.begin_epoch(3)
    with pytest.raises(UsageError, match="epoch 2 is over; the next one is 4"):
        time.begin_epoch(2)


def test_calls_outside_any_epoch_are_counted_and_not_captured() -> None:
    time, log, moment = timeline()
    call(time)
    assert time.outside == 1
    assert not moment.open
    assert log.lines == []


# Around a script, where nobody tells us anything


def test_with_a_loader_a_step_ends_at_the_first_pull_after_an_optimizer_step() -> None:
    time, log, _ = timeline(automatic=True)
    for batch in range(4):  # accumulation over two batches
        time.pulled()
        call(time)
        if batch % 2:
            time.tick()
    time.pulled()
    assert log.steps == ["train 0", "train 1"]


def test_two_optimizers_on_one_model_make_one_step() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(3):
        time.pulled()
        call(time)
        time.tick()
        time.tick()
    time.end_epoch()
    assert log.steps == ["train 0", "train 1", "train 2"]


def test_without_a_loader_a_step_ends_at_the_first_call_after_an_optimizer_step() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(2):
        call(time)
        call(time)
        time.tick()
    time.end_epoch()
    assert log.steps == ["train 0", "train 1"]


def test_a_closure_optimizer_calls_the_model_several_times_in_one_step() -> None:
    time, log, moment = timeline(automatic=True)
    for _ in range(2):
        time.pulled()
        for _ in range(3):
            call(time)
        time.tick()
        assert moment.microstep == 2
    time.end_epoch()
    assert log.steps == ["train 0", "train 1"]


def test_rollouts_in_eval_phase_before_the_update_are_steps_of_eval() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(2):
        for _ in range(3):
            call(time, "eval")
        call(time)
        time.tick()
    time.end_epoch()
    assert log.steps == ["eval 0", "eval 1", "eval 2", "train 0", "eval 3", "eval 4", "eval 5", "train 1"]


def test_a_teacher_called_in_eval_phase_before_the_backward_does_not_split_the_step() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(2):
        time.pulled()
        call(time)
        call(time, "eval")
        call(time)
        time.tick()
    time.end_epoch()
    assert log.steps == ["eval 0", "train 0", "eval 1", "train 1"]


def test_a_pass_over_the_training_loader_is_an_epoch_and_the_evaluation_after_it_belongs_to_it() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(2):
        time.pass_begins()
        for _ in range(2):
            time.pulled()
            call(time)
            time.tick()
        time.pulled()
        call(time, "eval")
    time.end_epoch()
    assert log.lines == [
        "epoch 0", "train 0", "train 1", "eval 0", "end 0",
        "epoch 1", "train 0", "train 1", "eval 0", "end 1",
    ]  # fmt: skip


def test_epoch_steps_cuts_an_endless_loop_and_leaves_no_empty_epoch_behind() -> None:
    time, log, _ = timeline(automatic=True, epoch_steps=2)
    for _ in range(4):
        time.pulled()
        call(time)
        time.tick()
    time.pulled()
    time.end_epoch()
    assert log.lines == ["epoch 0", "train 0", "train 1", "end 0", "epoch 1", "train 0", "train 1", "end 1"]


def test_rule_batch_counts_steps_that_a_scaler_skipped() -> None:
    time, log, _ = timeline(automatic=True, rule="batch")
    for batch in range(3):
        time.pulled()
        call(time)
        if batch != 1:
            time.tick()
    time.end_epoch()
    assert log.steps == ["train 0", "train 1", "train 2"]


def test_rule_forward_makes_every_outermost_call_a_step() -> None:
    time, log, _ = timeline(automatic=True, rule="forward")
    for _ in range(3):
        call(time)
    time.end_epoch()
    assert log.steps == ["train 0", "train 1", "train 2"]


def test_inference_only_counts_calls_in_an_epoch_that_opens_by_itself() -> None:
    time, log, _ = timeline(automatic=True)
    for _ in range(2):
        call(time, "eval")
    time.end_epoch()
    assert log.lines == ["epoch 0", "eval 0", "eval 1", "end 0"]
