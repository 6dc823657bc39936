"""A rank of a launch whose program calls no model: whether that is a fault is known when all ranks have ended."""

from __future__ import annotations

from pathlib import Path

from probes.errors import RunError
from probes.run_directory.create import default_directory, new_run_id
from probes.run_directory.launch.end_note import leave
from probes.run_directory.launch.join import Newcomer, agreed
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.launch.launcher import launcher, place_in_launch
from probes.runner.launch_summary import LaunchSummary, note_without_model
from probes.runner.start import Wanted, called_as_before
from probes.spec.load import LoadedSpec


def end_without_model(loaded: LoadedSpec, wanted: Wanted, why: str) -> LaunchSummary | None:
    """Leave the note of this rank in the run directory of its launch.

    Args:
        loaded: the spec.
        wanted: what a caller says of the run.
        why: what to say of this rank.

    Returns:
        The summary of all ranks on the last one; None on all others.

    Raises:
        RunError: this process is not one of several, or no rank has called a model.
        StorageError: the directory cannot be used.
    """
    rank, world = place_in_launch()
    if world == 1:
        raise RunError(why)
    by = launcher(world)
    loaded = called_as_before(loaded, wanted)
    run_id = new_run_id(by.job)
    directory = (Path(wanted.out) if wanted.out is not None else default_directory(loaded.spec.name, run_id)).absolute()
    begun = next(iter(launches(directory).values()), None) if directory.is_dir() else None
    run_id = run_id if begun is None else begun.run_id
    record = agreed(Newcomer(directory, run_id, by, world, rank, wanted.resume, wanted.take_over, loaded.identity_hash))
    notes = leave(directory, record, rank, note_without_model(why))
    if notes is None:
        return None
    if all(note.get("absent") for note in notes):
        raise RunError(f"no rank captured anything: {why}")
    return LaunchSummary(notes, directory)
