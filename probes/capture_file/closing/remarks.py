"""Whether a list of the run shows anything of a file's closing record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.capture_file.closing.missing_values import missing_values


def has_remarks(closing: Mapping[str, Any]) -> bool:
    """Whether it has missing values, events of triggers or broken rules; otherwise a list need not open the file."""
    trigger = closing.get("trigger")
    events = trigger.get("events") if isinstance(trigger, Mapping) else None
    return bool(missing_values(closing.get("accounts")) or closing.get("rules") or events)
