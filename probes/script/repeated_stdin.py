"""The standard input of this process for several child processes in turn; each gets all of it."""

from __future__ import annotations

import os
import sys
from subprocess import PIPE, Popen
from threading import Condition, Thread
from typing import Any

CHUNK = 1 << 16  # bytes of one read


class RepeatedStdin:
    """Reads the standard input when a child first needs it, and gives every child the same bytes from the beginning.

    A terminal cannot be repeated: a child inherits it. Without a standard input a child reads nothing.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._ended = False
        self._more = Condition()
        self._source = _descriptor()
        self._reader: Thread | None = None

    def run(self, command: list[str], **options: Any) -> tuple[int, str, str]:
        """Run a command to its end.

        Returns:
            Its exit code, what it wrote to stdout, and to stderr.
        """
        inherits = self._source is not None and os.isatty(self._source)
        child = Popen(command, stdin=None if inherits else PIPE, stdout=PIPE, stderr=PIPE, **options)
        pipe, child.stdin = child.stdin, None
        if pipe is not None:
            Thread(target=self._feed, args=(pipe, child), daemon=True).start()
        out, err = child.communicate()
        with self._more:
            self._more.notify_all()
        return child.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def _feed(self, pipe: Any, child: Popen[bytes]) -> None:
        """Write the stored input and then new input, until the child or the input ends."""
        try:
            index = 0
            while (chunk := self._chunk(index, child)) is not None:
                pipe.write(chunk)
                pipe.flush()
                index += 1
            pipe.close()
        except OSError:
            return  # the child has ended, or reads no more

    def _chunk(self, index: int, child: Popen[bytes]) -> bytes | None:
        with self._more:
            if self._reader is None and self._source is not None:
                self._reader = Thread(target=self._read, args=(self._source,), daemon=True)
                self._reader.start()
            while index >= len(self._chunks) and not self._ended and self._source is not None and child.returncode is None:
                self._more.wait()
            return self._chunks[index] if index < len(self._chunks) else None

    def _read(self, source: int) -> None:
        while chunk := os.read(source, CHUNK):
            with self._more:
                self._chunks.append(chunk)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()


def _descriptor() -> int | None:
    """The descriptor of the standard input; None if it is closed, or not a file."""
    try:
        return sys.stdin.fileno() if sys.stdin is not None else None
    except (OSError, ValueError):
        return None
