"""The description of the package in an index such as PyPI: the README without what works only inside of the repository.

hatchling runs it (`tool.hatch.metadata.hooks.custom` in pyproject.toml); tests/test_website.py checks the text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ModuleNotFoundError:  # outside of a build
    MetadataHookInterface = object

PICTURE = re.compile(r"^ *!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
WHERE = "The source distribution contains the documentation, in `docs`; `make site` builds it as a site.\n"


def description(readme: str) -> str:
    """The README without pictures, and with the text of each relative link in its place."""
    return f"{LINK.sub(lambda found: found[1], PICTURE.sub('', readme)).rstrip()}\n\n{WHERE}"


class Description(MetadataHookInterface):  # type: ignore[misc]  # hatchling is there only in a build
    """Gives the metadata this description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the text."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text)}
