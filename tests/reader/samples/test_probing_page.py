"""The program of docs/reading.md that probes a layer with a linear classifier, run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pages import script


def test_the_program_of_the_page_prints_what_it_prints_there(tmp_path: Path) -> None:
    probing = script("probing")
    found = probing.PROGRAM.search(probing.PAGE.read_text(encoding="utf-8"))
    shown, now = (re.findall(r"(\S+): (\d+) samples .* accuracy (0\.\d+) on (\d+)", text) for text in (found[3], probing.printed(tmp_path)))
    assert [one[:2] + one[3:] for one in now] == [one[:2] + one[3:] for one in shown] != []
    for (*_, there, _), (*_, here, _) in zip(shown, now, strict=True):
        assert abs(float(there) - float(here)) < 0.03  # other machines round otherwise
        assert float(here) > 0.8
