"""A run on the command line: its directory, a directory of runs, or one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class RunPath(click.Path):
    """A path that the verb itself looks at, so that the same mistake has the same exit code with every verb.

    An empty text is refused: it would mean the current directory, and is nearly always a variable of the shell that is not set.
    """

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text as a path."""
        if value == "":
            self.fail('the path is empty; "." is the current directory', param, ctx)
        return super().convert(value, param, ctx)


RUN_PATH = RunPath()
