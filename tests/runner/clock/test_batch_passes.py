"""The counts of batches and passes in the last lines of a run."""

from __future__ import annotations

from probes.runner.clock.batch_passes import TRAIN, BatchPasses


def test_batches_that_are_fetched_with_the_end_of_the_pass_are_counted() -> None:
    """The Trainer of transformers gets the batches of an update at once, and its loader looks for the next one before it gives the last."""
    passes = BatchPasses()
    for epoch in range(2):
        passes.begin(epoch, "loader", False, 0)
        for pulled in (3, 2, 1):
            for _ in range(pulled):
                passes.pull(epoch, TRAIN, False)
            if pulled == 1:
                passes.exhaust(epoch)
            passes.feed()
    assert (passes.training_pulls, passes.training_passes) == (12, 2)
