"""The user's request for a run of a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from probes.spec import LoadedSpec


class Command(NamedTuple):
    """The command that started a process.

    Attributes:
        before: the words before the program: interpreter, `probes run`, options and spec.
        program: the script, or `-m` and a module, as it was named.
    """

    before: tuple[str, ...]
    program: tuple[str, ...]


@dataclass(frozen=True)
class RunRequest:
    """The user's request for a run.

    Attributes:
        loaded: the spec.
        out: the run directory; by default one is made up.
        tags: free names and values for the manifest.
        data: digests of the data sets by name, for the manifest.
        resume: continue the run in `out`, if there is one.
        take_over: resume although a dead process has left its claim.
        first_epoch: number of the first epoch; by default 0, or of a run that is resumed the first that is not complete.
        command: how the process was started, so that a trainer's other processes can be started in the same way.
    """

    loaded: LoadedSpec
    out: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    resume: bool = False
    take_over: bool = False
    first_epoch: int | None = None
    command: Command | None = None
