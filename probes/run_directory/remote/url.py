"""URLs of run directories, such as `s3://bucket/runs/a`."""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"([a-z][a-z0-9+.-]+):/{1,3}([^/].*)", re.DOTALL)  # the command line reduces `//` of a URL to `/` in a path


def remote_url(place: str | Path) -> str | None:
    """The URL in a text, or in a path made of a URL; None for a local path."""
    found = _URL.fullmatch(str(place))
    if found is None or Path(place).exists():
        return None
    scheme, rest = found.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest.rstrip('/')}"
