"""The files of a run that a tracker stores, so that the captures can be verified from there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

Artifacts = Literal["none", "proof", "all"]
ABOUT = "`proof` uploads manifest, spec and ledger of the run at its end (some kB), `all` the sealed files too, `none` nothing."


def evidence(directory: Path | None, artifacts: Artifacts) -> list[Path]:
    """The files to upload: manifests, specs and ledgers of a run, and with `all` the sealed files that its ledgers list.

    Args:
        directory: the run directory; None if there is none.
        artifacts: which files.
    """
    if artifacts == "none" or directory is None:
        return []
    ledgers = sorted(directory.glob("ledger*.jsonl"))
    small = [*sorted(directory.glob("run*.json")), *sorted(directory.glob("spec*.yaml")), *ledgers]
    sealed = [directory / name for ledger in ledgers for name in _sealed(ledger)] if artifacts == "all" else []
    return [path for path in (*small, *sealed) if path.is_file()]


def verify_command(tags: Mapping[str, str], closing: Mapping[str, str]) -> dict[str, str]:
    """A tag with the command that verifies the run against the ledger head; none if nothing was sealed."""
    place, head = tags.get("probes.directory"), closing.get("probes.ledger_head")
    return {"probes.verify": f"probes verify {shlex.quote(place)} --anchor {head}"} if place and head else {}


def _sealed(ledger: Path) -> list[str]:
    """The names of the files that a ledger lists; a line that cannot be read is left out."""
    names = []
    with suppress(OSError):
        for line in ledger.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                names.append(Path(json.loads(line)["file"]).name)
    return names
