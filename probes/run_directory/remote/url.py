"""URLs of run directories, such as `s3://bucket/runs/a`."""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}([^/].*)", re.DOTALL)  # a path that a command line made of a URL has lost a slash


def remote_url(place: str | Path) -> str | None:
    """The URL that a text is, or a path made of one; None for a path of this machine."""
    found = _URL.fullmatch(str(place))
    if found is None or Path(place).exists():
        return None
    scheme, rest = found.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest.rstrip('/')}"
