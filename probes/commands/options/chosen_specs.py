"""`--skip-others`: leave out the files that are not specs, for a hook on every YAML file of a repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probes.spec.compose import file_bytes
from probes.spec.recognition import is_spec

SKIP_OTHERS = "Skip files that are not specs by their content; for hooks that get every YAML file."


def chosen(names: Sequence[str], skip_others: bool) -> list[str]:
    """The names of a command line without the files that are not specs, if the option is given; a missing file stays."""
    return [name for name in names if not (skip_others and Path(name).is_file() and not is_spec(file_bytes(Path(name))))]
