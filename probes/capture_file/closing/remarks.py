"""Whether there is anything in the closing record of a file that a list of the run shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.capture_file.closing.missing_values import missing_values


def has_remarks(closing: Mapping[str, Any]) -> bool:
    """Whether it has missing values, events of triggers or broken rules; a file without them need not be opened for them."""
    trigger = closing.get("trigger")
    events = trigger.get("events") if isinstance(trigger, Mapping) else None
    return bool(missing_values(closing.get("accounts")) or closing.get("rules") or events)
