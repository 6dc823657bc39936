"""The lines at the end of a run with counts of the events of the program, and warnings where its steps may mislead."""

from __future__ import annotations

from collections.abc import Iterator

from probes.printable import counted
from probes.runner.clock.batch_passes import TRAIN
from probes.runner.clock.open_epoch import BY_OPTIMIZER
from probes.runner.clock.run_clock import RunClock


def loop_lines(clock: RunClock) -> list[str]:
    """One line with counts of events, and a line for each warning."""
    return [_counts(clock), *_warnings(clock)]


def _counts(clock: RunClock) -> str:
    seen, steps = clock.seen, clock.totals + clock.counts
    skipped = f" ({seen.skipped} skipped by GradScaler)" if seen.skipped else ""
    pulls, passes = clock.passes.training_pulls, clock.passes.training_passes
    batches = f"{counted(pulls, 'batch', 'batches')} in {counted(passes, 'pass', 'passes')}"
    if not pulls:  # the program trains without a loader, or only evaluates
        batches = "0 training batches in 0 passes of a loader"
    calls = [counted(seen.training_calls, "training call"), *([counted(seen.other_calls, "other call")] if seen.other_calls else [])]
    listed = ", ".join(f"{count} `{phase}`" for phase, count in sorted(steps.items()) if count) or "none"
    dropped = f" ({clock.steps.dropped} dropped)" if clock.steps.dropped else ""
    dropped += f" ({counted(clock.steps.uncalled, 'item')} without a call of the model)" if clock.steps.uncalled else ""
    return f"seen: {counted(seen.updates, 'optimizer step')}{skipped}, {batches}, {', '.join(calls)}; steps: {listed}{dropped}"


def _warnings(clock: RunClock) -> Iterator[str]:
    seen, steps, rule, dropped = clock.seen, (clock.totals + clock.counts)[TRAIN], clock.rule, clock.steps.dropped
    if dropped:
        yield f"captures of {counted(dropped, 'dropped step')} are not stored"
    if seen.outside:
        yield f"{counted(seen.outside, 'call')} of the model came before or after the epochs of the loop, so they are not captured"
    if rule == "optimizer" and seen.several:
        yield (
            f"{seen.updates} optimizer steps are {steps} steps, because several of them came on one batch; "
            "`clock: {step: update}` makes each one a step"
        )
    if rule in BY_OPTIMIZER and not seen.updates and seen.accumulated:
        yield (
            f"no optimizer stepped a parameter of the model, so {seen.training_calls} training calls are {counted(steps, 'step')}; "
            "`clock: {step: batch}` or `{step: forward}` counts batches or calls"
        )
    if seen.alone:
        paths = [f"`{path}`" for path in seen.alone]
        named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        yield (
            f"{counted(seen.alone.total(), 'call')} of {named} {'is' if seen.alone.total() == 1 else 'are'} not captured: a part without "
            "parameters that the program calls by itself belongs to the call of the model before it, as long as its step is open"
        )
    if seen.eval_updates and seen.transformed:
        yield (
            f"{counted(seen.eval_updates, 'optimizer step')} followed calls of phase `eval`, and calls within transforms of `torch.func`, "
            "which are not steps: with `run.steps` each batch is a step"
        )
    elif seen.eval_updates:
        yield (
            f"{counted(seen.eval_updates, 'optimizer step')} followed calls of phase `eval` only, as after a forgotten `model.train()`; "
            "these calls are steps of `eval`: call `model.train()`, or name the phase (`run.phase`)"
        )
