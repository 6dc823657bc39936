"""Text from a file is shown, and cannot act on the terminal, the page or the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probes.cli import main
from probes.printable import aligned, counted, in_html, in_markdown, one_line, several_lines
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


def test_line_breaks_of_messages_of_probes_stay() -> None:
    assert several_lines("a\nb\x1b") == "a\nb\\x1b"


def test_names_in_a_file_cannot_print_a_forged_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


PATHS = ["bert.encoder.layer.11.attention.self.query.weight_orig_with_a_long_name", "bert.pooler", "x" * 300]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_fits_the_width_and_names_keep_both_ends(width: int) -> None:
    rows = [(path, "123456", "12 KiB", "a note") for path in PATHS]
    lines = aligned(("series", "captures", "bytes", "note"), rows, ("captures", "bytes"), width, ("note",))
    assert max(map(len, lines)) == width
    assert "bert.pooler" in lines[2]
    assert all("123456" in line and "12 KiB  a note" in line for line in lines[1:])
    first = lines[1].split("  ")[0]
    assert first.startswith("bert.encoder"[: min(12, len(first) // 2)])
    assert first.endswith("name")
    assert len({len(line.partition("123456")[0]) for line in lines[1:]}) == 1


def test_a_table_without_a_width_has_the_full_text_and_one_that_cannot_fit_keeps_its_numbers() -> None:
    assert PATHS[2] in "\n".join(aligned(("series",), [(path,) for path in PATHS]))
    narrow = aligned(("series", "bytes"), [("abc" * 20, "1" * 30)], ("bytes",), 20)
    name, number = narrow[1].split("\n")
    assert name == "abcabcabca…abcabcabc"
    assert number.strip() == "1" * 30


def transformer_series() -> list[str]:
    """Names as `show RUN 'updates/**'` lists them for a transformer."""
    parts = ["attention.self.query", "attention.self.key", "attention.output.dense", "intermediate.dense", "output.dense"]
    layers = [f"bert.encoder.layer.{layer}.{part}.weight" for layer in range(12) for part in parts]
    return [f"updates/{path}:update" for path in [*layers, "bert.embeddings.word_embeddings.weight", "classifier.weight"]]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_names_of_a_transformer_stay_distinct_at_every_width(width: int) -> None:
    names = transformer_series()
    header = ("series", "captures", "last", "min", "max", "nan", "inf", "mean of each capture")
    rows = [(name, "16", "0.0001646", "0.0001646", "0.005656", "0", "0", "▁" * 16) for name in names]
    lines = "\n".join(aligned(header, rows, header[1:-1], width, header[-1:])).split("\n")
    shown = lines[1:] if len(lines) == len(names) + 1 else lines[2::2]
    assert len(shown) == len(names)
    assert len({line.partition("  16  ")[0].strip() for line in shown}) == len(names), shown[:9]
    assert all(len(line) <= max(width, 76) for line in lines)
    assert all(f"layer.{at // 5}." in shown[at] for at in range(60))


def test_the_names_of_the_named_column_stay_distinct() -> None:
    rows = [("p" * 40, f"encoder.layers.{layer}.self_attention.projection.linear", "1") for layer in range(12)]
    lines = aligned(("probe", "target", "bytes"), rows, ("bytes",), 60, named="target")
    assert len(set(lines)) == 13
    assert max(map(len, lines)) == 60


def test_a_long_sentence_at_the_end_of_a_line_makes_no_name_shorter() -> None:
    lines = aligned(("probe", "hook", "note"), [("values", "pre-forward, forward, backward", "because " * 40)], (), 80, ("note",))
    assert lines[1].startswith("values  pre-forward, forward, backward  because")


def test_a_noun_is_in_the_plural_unless_the_number_is_one() -> None:
    assert [counted(number, "capture") for number in (0, 1, 2)] == ["0 captures", "1 capture", "2 captures"]
    assert [counted(number, "batch", "batches") for number in (1, 3)] == ["1 batch", "3 batches"]
