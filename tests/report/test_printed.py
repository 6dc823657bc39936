"""What the public functions return, in a program and in a notebook: short, as the verbs print it, and never markup of a name."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import probes
from probes.commands.diff import diff
from probes.commands.verify import verify
from tests.commands.conftest import Invoke
from tests.commands.conftest import invoke as invoke  # the fixture

HOSTILE = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Counts the elements of a page and joins its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Any, Any]:
    """Two runs of a model with a module whose name is markup, the second with other weights; and what `attach` gave for the first."""
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = nn.Sequential()
        model.add_module(HOSTILE, nn.Linear(2, 2))
        with (
            probes.attach(
                model, {"version": 1, "probes": {"acts": {"hook": "forward", "modules": ["*"]}}}, out=tmp_path / f"{seed}"
            ) as run,
            run.epoch(0),
        ):
            model(torch.ones(1, 2))
        made.append(run)
    return made[0], made[1]


def test_printed_objects_equal_the_output_of_the_verbs_and_a_notebook_shows_names_as_text(
    runs: Any, tmp_path: Path, invoke: Invoke
) -> None:
    a, b = str(tmp_path / "0"), str(tmp_path / "1")
    verdict, found, read = probes.verify(a), probes.diff(a, b), probes.open(a)
    assert f"{verdict}\n" == invoke(verify, a).out
    assert f"{found}\n" == invoke(diff, a, b).out
    assert verdict.ok
    assert found.verdict == "different"
    series = read.series[0]
    shown = (verdict, found, read, read.series, read.match("acts"), series, runs[0].summary(), runs[0].plan)
    for one in shown:
        page = Tags(one._repr_html_())
        assert page.tags <= {"pre", "table", "caption", "thead", "tbody", "tr", "th", "td"}, repr(one)
        assert "\n" not in repr(one)
        assert len(repr(one)) < 200
    for one in (found, read, read.series, series, runs[0].plan):
        assert HOSTILE in Tags(one._repr_html_()).text
    assert isinstance(read.series, list)
    assert repr(read.sel(phase="eval").series) == "<no series>"
    assert repr(runs[0]).endswith(": 1 bindings, over>")
