"""A report read back with the standard library alone: its texts, its tags, and the data that it draws."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from typing import Any

import numpy as np


class Read(HTMLParser):
    """The tags of a page, the text outside of scripts, and the data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.text = ""
        self._quiet = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self._quiet = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._quiet = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._quiet else data


def data_of(page: str) -> dict[str, Any]:
    """What the page draws."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    found: dict[str, Any] = json.loads(gzip.decompress(b64decode(packed)))
    return found


def line_of(run: dict[str, Any], probe: str, target: str, figure: str = "", phase: str = "train", place: str = "") -> dict[int, float]:
    """The numbers of one line by global step."""
    for group in run["groups"]:
        for row in group["rows"]:
            if (group["probe"], row["target"], group["phase"], row["place"]) == (probe, target, phase, place):
                line = row["figures"][figure]
                steps = run["axes"][line["axis"]]
                numbers = [line["constant"]] * len(steps) if "constant" in line else line["numbers"]
                return dict(zip(steps, map(float, numbers), strict=True))
    raise AssertionError(f"no line {probe}/{target} {figure} {place}")


def same(found: list[Any], expected: np.ndarray) -> bool:
    """Whether numbers of the page are those of an array, bit for bit; a NaN is a NaN."""
    numbers = np.array([float(one) for one in found]).astype(expected.dtype)
    return numbers.shape == expected.shape and np.array_equal(numbers, expected, equal_nan=expected.dtype.kind == "f")
