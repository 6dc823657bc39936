"""What is read from a file is shown, and cannot act on the terminal, the page or the report that shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probes.cli import main
from probes.printable import in_html, in_markdown, one_line, several_lines
from tests.reader.recorded import KEY, Recording

HOSTILE = (
    "\x1b[2J",
    "\x1b]0;t\x07",
    "\r",
    "\n",
    "\u202e",
    "\u2066",
    "\u2028",
    "\x85",
    "\x9b31m",
    "\ud800",
    "\x00",
    "\x7f",
    "\u200b",
    "\ufeff",
    "\xad",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_but_visible_characters_is_printed(text: str) -> None:
    for shown in (one_line(f"a{text}b"), in_markdown(f"a{text}b"), in_html(f"a{text}b")):
        assert shown.isprintable()
        assert shown[0] == "a"
        assert shown[-1] == "b"


@pytest.mark.parametrize("text", ["plain", "Überlauf", "層.重み", "a b", "tab\there", "√2 ± ε"])
def test_text_that_is_visible_is_printed_as_it_is(text: str) -> None:
    assert one_line(text) == text


def test_line_breaks_of_our_own_messages_stay() -> None:
    assert several_lines("a\nb\x1b") == "a\nb\\x1b"


def test_a_file_draws_no_verdict_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    fake = "x\nrun verifies, as anchored\x1b[1A\u202e"
    key = KEY._replace(probe=fake, target=fake)
    Recording(tmp_path / "run").take(np.zeros(3, "<f4"), key=key, attrs={"about": fake}).sealed(complete=False)
    (tmp_path / "run" / f"epoch-{fake}.h5").write_bytes(b"")
    for words in (["ls", "run"], ["verify", "run"], ["show", "run", f"{fake}/{fake}"], ["diff", "run", "run"], ["recover", "run"]):
        monkeypatch.setattr("sys.argv", ["probes", *words])
        with pytest.raises(SystemExit):
            main()
        said = "".join(capsys.readouterr())
        assert said
        assert not any(mark in said for mark in ("\x1b[1A", "\u202e", "\nrun verifies")), said
