"""A line at the end of a terminal that is erased before any other output."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any, TextIO

ERASE = "\r\x1b[2K"
BELOW = "\n\x1b[J"  # a new line; progress bars below the cursor are erased, and drawn again by their program
PAUSE = 0.1  # seconds between two states of the line


class StatusLine:
    """A line with the progress of something, on a stream that is a terminal; on other streams it shows nothing.

    While the line is in use, `write` and `flush` of the streams are replaced on the objects themselves, which stay the ones that a program
    holds: before a program's text the line goes. As long as a text has not ended its line (a bar of tqdm, `print(..., end="")`), no
    line is shown, because it would cut that text.

    Args:
        stream: where the line is shown.
        others: streams of the same terminal; those that are not a terminal are left as they are.
    """

    def __init__(self, stream: TextIO, others: Sequence[TextIO] = ()) -> None:
        self._stream = stream
        self._streams = [one for one in dict.fromkeys((stream, *others)) if one.isatty()]
        self._write: Callable[[str], int] = stream.write
        self._flush: Callable[[], None] = stream.flush
        self._unfinished: set[int] = set()
        self._hooks: list[tuple[Any, dict[str, Any]]] = []
        self._shown = self._drawing = False
        self.usable = stream.isatty()

    def __enter__(self) -> StatusLine:
        for one in self._streams if self.usable else ():
            hooks: dict[str, Any] = {"write": self._writes(one, one.write), "flush": self._flushes(one.flush)}
            self._replace(one, hooks)
            binary: Any = getattr(one, "buffer", None)  # a terminal that does not belong to the interpreter may have none
            if hasattr(binary, "__dict__") and hasattr(binary, "write"):
                self._replace(binary, {"write": self._writes_bytes(binary, binary.write)})
        return self

    def _replace(self, one: Any, hooks: dict[str, Any]) -> None:
        for name, hook in hooks.items():
            setattr(one, name, hook)
        self._hooks.append((one, hooks))

    def __exit__(self, *_: object) -> None:
        self.take_back()
        while self._hooks:
            one, hooks = self._hooks.pop()
            for name, hook in hooks.items():
                if vars(one).get(name) is hook:  # a program may have replaced it
                    delattr(one, name)

    def show(self, text: str) -> None:
        """Show a text instead of the one before; one that is wider than the terminal is cut."""
        if self.usable and not self._unfinished:
            self._draw(f"{ERASE}{text[: max(shutil.get_terminal_size().columns - 1, 1)]}")
            self._shown = True

    def say(self, text: str) -> None:
        """Print permanent lines."""
        self.take_back()
        begun, self._unfinished = bool(self._unfinished), set()
        self._draw(f"{BELOW if begun else ''}{text}\n")

    def take_back(self) -> None:
        """Remove the line, if one is shown."""
        if self._shown:
            self._shown = False
            self._draw(ERASE)

    def _draw(self, text: str) -> None:
        """Write own output: the bytes of the stream do not erase the line."""
        self._drawing = True
        try:
            self._write(text)
            self._flush()
        except (OSError, ValueError):
            self.usable = False
        finally:
            self._drawing = False

    def _writes_bytes(self, binary: Any, write: Callable[[Any], int]) -> Callable[[Any], int]:
        def written(data: Any) -> int:
            if not self._drawing:
                self.take_back()
                if len(data):
                    (self._unfinished.discard if bytes(data[-1:]) == b"\n" else self._unfinished.add)(id(binary))
            return write(data)

        return written

    def _writes(self, stream: TextIO, write: Callable[[str], int]) -> Callable[[str], int]:
        def written(text: str) -> int:
            self.take_back()
            if isinstance(text, str) and text:
                (self._unfinished.discard if text.endswith("\n") else self._unfinished.add)(id(stream))
            return write(text)

        return written

    def _flushes(self, flush: Callable[[], None]) -> Callable[[], None]:
        def flushed() -> None:
            self.take_back()  # `input` flushes, then writes its prompt without Python's streams
            flush()

        return flushed
