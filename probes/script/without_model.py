"""The end of a program that called no model."""

from __future__ import annotations

from probes.errors import ProbesError, RunError
from probes.run_directory.launch.launcher import place_in_launch
from probes.script.progress import Progress
from probes.script.run_request import RunRequest


def without_model(request: RunRequest, progress: Progress, why: str) -> ProbesError | None:
    """The error of the end; None if other ranks of a launch may still call a model.

    Args:
        request: the user's request.
        progress: tells the user.
        why: what happened in this process.
    """
    from probes.runner.rank_without_model import end_without_model  # imports torch, which the program may not have imported
    from probes.runner.start import Wanted

    try:
        wanted = Wanted(out=request.out, resume=request.resume, take_over=request.take_over)
        summary = end_without_model(request.loaded, wanted, why)
    except ProbesError as error:
        return error
    progress.without_model(place_in_launch()[0], why, summary)
    return RunError("\n".join(map(str, summary.problems))) if summary is not None and summary.problems else None
