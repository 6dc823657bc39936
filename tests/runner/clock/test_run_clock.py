"""Steps, microsteps, phases and epochs of common loops: the table that decides between the rules."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from probes.errors import UsageError
from probes.runner.clock.open_epoch import LEFT
from tests.runner.clock.loop_styles import Program

# Around a script, where the loop says nothing


def plain(p: Program) -> None:
    for _ in range(2):
        for _ in p.batches("train", 3):
            p.train()
        for _ in p.batches("valid", 2, "eval"):
            p.call("eval")


def accumulation(p: Program) -> None:
    for _ in range(2):
        for index in p.batches("train", 5):
            p.call()
            if index % 2 or index == 4:
                p.update()


def accumulation_without_its_rest(p: Program) -> None:
    for _ in range(2):
        for index in p.batches("train", 5):
            p.call()
            if index % 2:
                p.update()


def accumulation_over_the_end_of_an_endless_stream(p: Program) -> None:
    stream = (index for again in range(9) for index in p.batches("train", 5, endless=again > 0))
    for _ in range(10):
        for _ in islice(stream, 2):
            p.call()
        p.update()


def two_optimizers(p: Program) -> None:
    for _ in p.batches("train", 3):
        p.call()
        p.update()
        p.update()


def closure(p: Program) -> None:
    for _ in p.batches("train", 2):
        for _ in range(3):
            p.call()
        p.update()


def no_loader(p: Program) -> None:
    for _ in range(4):
        p.train()


def no_loader_accumulated(p: Program) -> None:
    for _ in range(2):
        p.call()
        p.call()
        p.update()


def shape_check_first(p: Program) -> None:
    p.call()
    plain(p)


def pseudo_labels(p: Program) -> None:
    for _ in range(3):
        for _ in p.batches("train", 2):
            p.call("eval")
            p.train()


def adversarial_examples_in_eval_mode(p: Program) -> None:
    for _ in range(2):
        for _ in p.batches("train", 2):
            for _ in range(3):
                p.call("eval")
            p.train()


def metrics_after_the_update(p: Program) -> None:
    for _ in p.batches("train", 2):
        p.train()
        p.call("eval")
        p.call()  # such as a discriminator in the generator's update


def evaluation_of_batches_from_a_kept_iterator(p: Program) -> None:
    kept = p.batches("valid", 2)
    for _ in range(3):
        for _ in p.batches("train", 3):
            p.train()
            try:
                next(kept)
            except StopIteration:
                kept = p.batches("valid", 2)
                next(kept)
            p.call("eval")


def rollouts(p: Program) -> None:
    for _ in range(2):
        for _ in range(3):
            p.call("eval")
        p.train()
        p.train()


def loaders_in_turn(p: Program) -> None:
    for _ in range(2):
        for name in ("a", "b"):
            for _ in p.batches(name, 2):
                p.train()


def zipped(p: Program) -> None:
    for _ in range(2):
        for _ in zip(p.batches("a", 2), p.batches("b", 4), strict=False):
            p.call()
            p.call()
            p.update()


def zipped_with_the_longer_one_first(p: Program) -> None:
    for _ in range(2):
        for _ in zip(p.batches("a", 4), p.batches("b", 2), strict=False):
            p.train()


def restarted_inside(p: Program) -> None:
    others = p.batches("b", 2)
    for _ in range(2):
        for _ in p.batches("a", 5):
            try:
                next(others)
            except StopIteration:
                others = p.batches("b", 2)
                next(others)
            p.call()
            p.call()
            p.update()


def restarted_outside(p: Program) -> None:
    """The loader that is restarted stands around one that is held over the epochs."""
    held = p.batches("b", 99)
    for _ in range(2):
        for _ in p.batches("a", 2):
            next(held)
            p.call()
            p.update()


def critics(p: Program) -> None:
    """Of each batch of the outer loader five updates on batches of an inner one that is restarted."""
    inner = p.batches("inner", 4)
    for _ in range(2):
        for _ in p.batches("outer", 2):
            for _ in range(3):
                try:
                    next(inner)
                except StopIteration:
                    inner = p.batches("inner", 4)
                    next(inner)
                p.train()


def infinite_loader(p: Program) -> None:
    """A loader that runs one inner iterator for ever: a new `iter` of it is a new pass."""
    for _ in range(3):
        for _ in p.batches("train", 2):
            p.train()


def made_for_each_epoch(p: Program) -> None:
    for epoch in range(3):
        for _ in p.batches(f"train {epoch}", 2):
            p.train()
        p.hear(p.clock.loader_deleted(f"train {epoch}"))


def cycled_by_itertools(p: Program) -> None:
    for _ in p.batches("train", 3):
        p.call()
        p.update()
    for _ in range(4):
        p.train()


def pulled_ahead(p: Program) -> None:
    for _ in range(2):
        batches = p.batches("train", 3)
        ahead = next(batches, None)
        while ahead is not None:
            ahead = next(batches, None)
            p.train()


def evaluation_on_the_training_loader(p: Program) -> None:
    for _ in range(2):
        for _ in p.batches("train", 2):
            p.train()
        for _ in p.batches("train", 2, "eval"):
            p.call("eval")


def encode_and_decode(p: Program) -> None:
    for _ in p.batches("valid", 3, "eval"):
        p.call("eval")
        p.call("eval")


def validation_in_the_middle(p: Program) -> None:
    for index in p.batches("train", 4):
        p.train()
        if index % 2:
            for _ in p.batches("valid", 2, "eval"):
                p.call("eval")
                p.call("eval")


def sampling_in_the_middle(p: Program) -> None:
    for _ in p.batches("train", 2):
        p.train()
        for _ in range(3):
            p.call("eval")


def train_mode_in_the_body(p: Program) -> None:
    """An evaluation leaves the model in eval mode; the loop's body puts it into train mode."""
    for epoch in range(2):
        for _ in p.batches("train", 2, "eval" if epoch else "train"):
            p.train()
        for _ in p.batches("valid", 1, "eval"):
            p.call("eval")


def truncated_backpropagation(p: Program) -> None:
    for _ in p.batches("train", 3):
        for _ in range(5):
            p.train()


def loss_scaling(p: Program) -> None:
    for index in p.batches("train", 3):
        p.call()
        p.update(skipped=index == 1)


def updates_by_hand(p: Program) -> None:
    for _ in range(2):
        for _ in p.batches("train", 3):
            p.call()


def batch_that_raised(p: Program) -> None:
    for index in p.batches("train", 4):
        p.call(raised=index == 1)
        if index != 1:
            p.update()


def smaller_batch_after_one_that_raised(p: Program) -> None:
    for index in p.batches("train", 3):
        if index == 1:
            p.call(raised=True)
        p.train()


STYLES: dict[Any, tuple[list[list[int]], list[list[int]]]] = {
    plain: ([[1, 1, 1], [1, 1, 1]], [[1, 1], [1, 1]]),
    accumulation: ([[2, 2, 1], [2, 2, 1]], []),
    accumulation_without_its_rest: ([[2, 2, 1], [2, 2, 1]], []),
    accumulation_over_the_end_of_an_endless_stream: ([[2, 2, 2], [2, 2], [2, 2, 2], [2, 2]], []),
    two_optimizers: ([[1, 1, 1]], []),
    closure: ([[3, 3]], []),
    no_loader: ([[1, 1, 1, 1]], []),
    no_loader_accumulated: ([[2, 2]], []),
    shape_check_first: ([[2, 1, 1], [1, 1, 1]], [[1, 1], [1, 1]]),
    pseudo_labels: ([[1, 1], [1, 1], [1, 1]], [[1, 1], [1, 1], [1, 1]]),
    adversarial_examples_in_eval_mode: ([[1, 1], [1, 1]], [[1] * 6, [1] * 6]),
    metrics_after_the_update: ([[2, 2]], [[1, 1]]),
    evaluation_of_batches_from_a_kept_iterator: ([[1] * 3] * 3, [[1] * 3] * 3),
    rollouts: ([[1, 1, 1, 1]], [[1] * 6]),
    loaders_in_turn: ([[1] * 4, [1] * 4], []),
    zipped: ([[2, 2], [2, 2]], []),
    zipped_with_the_longer_one_first: ([[1, 1], [1, 1]], []),
    restarted_inside: ([[2] * 5, [2] * 5], []),
    restarted_outside: ([[1, 1], [1, 1]], []),
    critics: ([[1] * 6, [1] * 6], []),
    infinite_loader: ([[1, 1], [1, 1], [1, 1]], []),
    made_for_each_epoch: ([[1, 1], [1, 1], [1, 1]], []),
    cycled_by_itertools: ([[1] * 7], []),
    pulled_ahead: ([[1] * 3, [1] * 3], []),
    evaluation_on_the_training_loader: ([[1, 1], [1, 1]], [[1, 1], [1, 1]]),
    encode_and_decode: ([], [[2, 2, 2]]),
    validation_in_the_middle: ([[1] * 4], [[2] * 4]),
    sampling_in_the_middle: ([[1, 1]], [[1] * 6]),
    train_mode_in_the_body: ([[1, 1], [1, 1]], [[1], [1]]),
    truncated_backpropagation: ([[5, 5, 5]], []),
    loss_scaling: ([[1, 1, 1]], []),
    updates_by_hand: ([[3], [3]], []),
    batch_that_raised: ([[1, 1, 1, 1]], []),
    smaller_batch_after_one_that_raised: ([[1, 2, 1]], []),
}


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_a_plain_loop_has_the_steps_and_epochs_that_its_author_counts(style: Any) -> None:
    program = Program()
    style(program)
    program.end()
    assert (program.table(), program.table("eval")) == STYLES[style]
    assert all(line.endswith(tuple("0123456789")) for line in program.epochs), "every one of these loops comes to its end"


@pytest.mark.parametrize(
    ("style", "rule", "expected"),
    [
        (truncated_backpropagation, "update", [[1] * 15]),
        (accumulation, "batch", [[1] * 5, [1] * 5]),
        (accumulation, "forward", [[1] * 5, [1] * 5]),
        (accumulation, "update", [[2, 2, 1], [2, 2, 1]]),
        (zipped, "batch", [[2, 2], [2, 2]]),
        (closure, "forward", [[1] * 6]),
        (restarted_inside, "batch", [[2] * 5, [2] * 5]),
        (metrics_after_the_update, "update", [[1, 2, 1]]),
        (loss_scaling, "batch", [[1] * 3]),
        (loss_scaling, "update", [[1] * 3]),
    ],
)
def test_the_spec_sets_what_ends_a_step(style: Any, rule: str, expected: list[list[int]]) -> None:
    program = Program(rule=rule)
    style(program)
    program.end()
    assert program.table() == expected


def test_several_updates_on_one_batch_are_reported_once() -> None:
    program = Program()
    truncated_backpropagation(program)
    assert program.lines.count("several updates") == 1
    program = Program()
    two_optimizers(program)
    metrics_after_the_update(program)
    assert "several updates" not in program.lines


def test_epoch_steps_cut_any_loop_and_leave_no_empty_epoch() -> None:
    for style in (no_loader, plain, infinite_loader):
        program = Program(epoch_steps=2)
        style(program)
        program.end()
        assert {tuple(epoch) for epoch in program.table()} == {(1, 1)}
        assert not [line for line in program.epochs if LEFT in line]


def test_a_step_that_raised_and_was_skipped_is_dropped_and_counts() -> None:
    program = Program()
    batch_that_raised(program)
    program.end()
    assert program.steps == ["train 0", "train 1 dropped", "train 2", "train 3"]
    program = Program()
    smaller_batch_after_one_that_raised(program)
    program.end()
    assert program.steps == ["train 0", "train 1", "train 2"]


def test_an_evaluation_call_that_raised_is_dropped() -> None:
    program = Program()
    program.call("eval", raised=True)
    program.call("eval")
    assert program.steps == ["eval 0 dropped", "eval 1"]


def test_an_epoch_with_unused_batches_is_not_complete() -> None:
    program = Program()
    for epoch in range(2):
        batches = program.batches("train", 3)
        for index in batches:
            program.train()
            if index == 1 and not epoch:
                break
        batches.close()
    program.end()
    assert program.epochs == [f"end 0 {LEFT}", "end 1"]


def test_an_epoch_that_is_left_after_its_last_batch_is_complete() -> None:
    program = Program()
    batches = program.batches("train", 3)
    for index in batches:
        program.train()
        if index == 2:
            break
    batches.close()
    assert program.end()[-1] == "end 0"


def test_an_epoch_whose_last_batch_was_pulled_and_not_trained_on_is_not_complete() -> None:
    program = Program()
    batches = program.batches("train", 3)
    for index in batches:
        if index == 2:
            break
        program.train()
    batches.close()
    assert program.end()[-1] == f"end 0 {LEFT}"


def test_an_exception_that_ends_the_program_drops_the_step_that_is_open() -> None:
    program = Program()
    batches = program.batches("train", 3)
    for index in batches:
        program.call()
        if index == 1:
            break
        program.update()
    assert program.end("exception: KeyError")[-2:] == ["train 1 dropped", "end 0 exception: KeyError"]
    batches.close()


def test_the_last_step_of_a_pass_is_committed_when_the_pass_is_over() -> None:
    program = Program()
    for _ in program.batches("train", 2):
        program.train()
    assert program.steps == ["train 0", "train 1"]


# Where the loop speaks


def test_an_item_of_the_loop_is_a_step_with_any_number_of_calls() -> None:
    program = Program(automatic=False)
    for _ in program.items(2):
        program.call()
        program.train()
        program.call()
    assert program.table() == [[3, 3]]
    assert program.lines == ["epoch 0", "train 0", "train 1"]


@pytest.mark.parametrize("around", ["phase around the steps", "steps around the phase"])
def test_phase_and_step_may_be_nested_either_way(around: str) -> None:
    program = Program(automatic=False)
    if around == "phase around the steps":
        program.hear(program.clock.phase_named("eval"))
        for _ in program.items(3):
            program.call()
            program.call()
        program.hear(program.clock.phase_ends())
    else:
        for _ in program.items(3):
            program.hear(program.clock.phase_named("eval"))
            program.call()
            program.call()
            program.hear(program.clock.phase_ends())
    assert (program.table(), program.table("eval")) == ([], [[2, 2, 2]])
    assert program.steps == ["eval 0", "eval 1", "eval 2"]


def test_a_validation_within_a_training_item_does_not_end_it() -> None:
    program = Program(automatic=False)
    for _ in program.items(2):
        program.call()
        program.hear(program.clock.phase_named("eval"))
        for _ in program.items(2):
            program.call()
        program.hear(program.clock.phase_ends())
        program.train()
    assert program.steps == ["eval 0", "eval 1", "train 0", "eval 2", "eval 3", "train 1"]
    assert program.table() == [[2, 2]]


def test_a_phase_that_iterates_a_loader_has_a_step_for_each_batch() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.phase_named("test"))
    for _ in program.batches("valid", 2):  # in train mode, as for dropout sampling
        for _ in range(3):
            program.call()
    program.hear(program.clock.phase_ends())
    assert program.table("test") == [[3, 3]]


def test_a_step_that_accumulates_continues_after_a_named_phase() -> None:
    program = Program(automatic=False)
    for index in range(4):
        program.call()
        if index % 2:
            program.update()
        program.hear(program.clock.phase_named("eval"))
        program.call()
        program.hear(program.clock.phase_ends())
    program.end()
    assert program.table() == [[2, 2]]


def test_a_phase_whose_body_raised_drops_its_open_step_and_nothing_around_it() -> None:
    program = Program(automatic=False)
    key = object()
    program.hear(program.clock.item_begins(key))
    program.call("eval")
    program.hear(program.clock.phase_named("train"))
    program.call()
    program.hear(program.clock.phase_ends(raised="exception: ValueError"))
    program.hear(program.clock.item_ends(key))
    assert program.steps == ["train 0 dropped", "eval 0"]
    assert program.end()[-1] == "end 0 exception: ValueError"


def test_leaving_steps_early_makes_the_epoch_incomplete_and_keeps_the_last_step() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.epoch_begins(0))
    for _ in program.items(10, left_at=3):
        program.train()
    program.end()
    assert program.lines[-2:] == ["train 3", f"end 0 {LEFT}"]


def test_leaving_steps_by_an_exception_drops_the_last_one() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.epoch_begins(0))
    for _ in program.items(10, left_at=3, raised=True):
        program.call()
    program.end()
    assert program.lines[-2:] == ["train 3 dropped", "end 0 exception"]


def test_leaving_steps_after_the_last_batch_makes_a_complete_epoch() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.epoch_begins(0))
    for _ in program.items(3, left_at=2):
        program.train()
    assert program.end()[-1] == "end 0"


def test_an_item_without_a_call_of_the_model_is_not_a_step() -> None:
    program = Program(automatic=False)
    for index in program.items(3):
        if index:
            program.train()
    assert program.steps == ["train 0", "train 1"]


def test_the_first_call_opens_epoch_0_and_an_epoch_that_the_loop_begins_takes_it_over() -> None:
    program = Program(automatic=False)
    program.call("eval")
    program.call()
    program.hear(program.clock.epoch_begins(0))
    program.train()
    program.end()
    assert program.lines == ["epoch 0", "eval 0", "train 0 dropped", "train 0", "end 0"]
    assert program.clock.seen.outside == 1


def test_calls_after_the_epochs_of_the_loop_are_counted_and_not_captured() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.epoch_begins(0))
    program.end()
    program.call()
    assert (program.clock.seen.outside, program.places) == (1, [])


def test_an_epoch_that_has_ended_does_not_begin_again() -> None:
    program = Program(automatic=False)
    program.hear(program.clock.epoch_begins(3))
    with pytest.raises(UsageError, match="epoch 2 is over; the next one is 4"):
        program.clock.epoch_begins(2)


def test_an_epoch_that_calls_have_opened_and_ended_does_not_begin_again() -> None:
    program = Program(automatic=False, rule="forward", epoch_steps=2)
    for _ in range(5):
        program.call()
    with pytest.raises(UsageError, match="epoch 0 is over; the next one is 3"):
        program.clock.epoch_begins(0)


def test_steps_count_from_zero_in_every_epoch_and_totals_continue() -> None:
    program = Program(automatic=False)
    for epoch in range(2):
        program.hear(program.clock.epoch_begins(epoch))
        for _ in program.items(2):
            program.train()
        program.end()
    assert program.table() == [[1, 1], [1, 1]]
    assert program.clock.totals["train"] == 4


def test_calls_of_several_threads_are_separate_steps() -> None:
    program = Program()
    for thread in (1, 2, 3):
        program.enter("eval", thread)
    for thread in (2, 3, 1):
        program.leave(thread)
    assert program.places == [(0, "eval", 0, 0), (0, "eval", 1, 0), (0, "eval", 2, 0)]
    assert program.steps == ["eval 1", "eval 2", "eval 0"]


def test_a_training_step_is_paused_once_for_overlapping_calls_of_other_threads() -> None:
    program = Program()
    program.call()
    for thread in (1, 2):
        program.enter("eval", thread)
    for thread in (1, 2):
        program.leave(thread)
    assert [line for line in program.lines if line.startswith(("paused", "resumed"))] == ["paused train 0", "resumed train 0"]


def test_an_optimizer_that_steps_after_calls_of_other_phases_is_counted() -> None:
    program = Program()
    plain(program)
    assert program.clock.seen.eval_updates == 0
    for _ in program.batches("train", 3, "eval"):
        program.call("eval")
        program.update()
    assert program.clock.seen.eval_updates == 3


def test_a_call_with_gradients_waits_for_a_backward_until_anything_else_happens() -> None:
    program = Program()
    program.hear(program.clock.call_enters("eval", grad=True))
    program.leave()
    assert program.steps == []
    program.call("eval")
    assert program.steps == ["eval 0", "eval 1"]
    program.hear(program.clock.call_enters("eval", grad=True))
    program.leave()
    for _ in program.batches("train", 1):
        assert program.steps[-1] == "eval 2"
        program.call()
        program.hear(program.clock.call_enters("eval", grad=True))  # the step around it is the one that a backward may belong to
        program.leave()
        assert program.steps[-1] == "eval 3"
