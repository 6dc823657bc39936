"""The server of programs: `python -m tests.warm SOCKET`."""

from __future__ import annotations

from tests.warm import ending, server

server.main(ending.short())
