"""Anchors in trackers: the ledger head that a sink has left in the tags of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from probes.errors import FileRefused, UsageError
from probes.optional_package import import_optional
from probes.proof.anchor import checked
from probes.proof.anchors.kept import KeptAnchor

HEAD, RUN = "probes.ledger_head", "probes.run_id"


def is_tracker(place: str) -> bool:
    """Whether a text names a run of a tracker: `mlflow:ID`, `wandb:ENTITY/PROJECT/ID` or `trackio:PROJECT/NAME`."""
    return place.partition(":")[0] in TRACKERS and ":" in place


def anchor_in(place: str) -> KeptAnchor:
    """The anchor that a sink has left in a run of a tracker.

    Args:
        place: name of the tracker, a colon, and how it calls the run.

    Raises:
        UsageError: the tracker has no such run, or the run no head.
        FileRefused: what it has is not a head.
        MissingExtra: the package of the tracker is not installed.
    """
    tracker, _, name = place.partition(":")
    try:
        tags = TRACKERS[tracker](import_optional(tracker, tracker, f"`--anchor {tracker}:`"), name)
    except (UsageError, ImportError):
        raise
    except Exception as error:  # each tracker has its own errors, and some are not exported
        raise UsageError(f"{tracker} has no run `{name}` that can be read: {type(error).__name__}: {error}") from error
    head, run_id = tags.get(HEAD), tags.get(RUN)
    if not head:
        raise UsageError(f"the run `{name}` of {tracker} has no `{HEAD}`: its program has not ended, or sealed nothing")
    try:
        (digits,) = checked(str(head))
    except UsageError as error:
        raise FileRefused("not-an-anchor", f"`{HEAD}` of {json.dumps(place)} is not a ledger head") from error
    return KeptAnchor(digits, str(run_id or ""))


def _mlflow(package: Any, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = package.MlflowClient().get_run(name).data.tags
    return found


def _wandb(package: Any, name: str) -> Mapping[str, Any]:
    run = package.Api().run(name)
    return {RUN: run.config.get(RUN), HEAD: run.summary.get(HEAD)}


def _trackio(_package: Any, name: str) -> Mapping[str, Any]:
    storage = import_optional("trackio.sqlite_storage", "trackio", "`--anchor trackio:`").SQLiteStorage
    project, _, run = name.rpartition("/")
    if not project:
        raise UsageError(f"`{name}` is not PROJECT/NAME of a run of trackio")
    return dict((storage.get_artifact_manifest(project, f"probes-{run}", None) or {}).get("metadata") or {})


TRACKERS: dict[str, Callable[[Any, str], Mapping[str, Any]]] = {"mlflow": _mlflow, "wandb": _wandb, "trackio": _trackio}
