"""The user's request for a run of a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from probes.spec import LoadedSpec

TWO_WORDS = ("-W", "-X", "--check-hash-based-pycs")  # options of the interpreter with a value of their own


class Command(NamedTuple):
    """The command that started a process.

    Attributes:
        before: the words before the program: interpreter, `probes run`, options and spec.
        program: the script, or `-m` and a module, as it was named.
    """

    before: tuple[str, ...]
    program: tuple[str, ...]

    def again(self, words: Sequence[str]) -> list[str] | None:
        """The words that start the same program with probes; None if the given words start another one.

        Args:
            words: those of a process that the program starts: this interpreter with options of its own, the program, its arguments.
        """
        if not words or os.path.realpath(words[0]) != os.path.realpath(sys.executable):
            return None
        at = 1
        while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
            at += 2 if words[at] in TWO_WORDS else 1
        return [*self.before[:1], *words[1:at], *self.before[1:], *words[at:]] if self._is_program(words[at:]) else None

    def _is_program(self, words: Sequence[str]) -> bool:
        if self.program[:1] == ("-m",):
            return tuple(words[:2]) == self.program[:2] or list(words[1:2]) == [f"{self.program[1]}.__main__"]
        return bool(words) and os.path.realpath(words[0]) == os.path.realpath(self.program[0])


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
