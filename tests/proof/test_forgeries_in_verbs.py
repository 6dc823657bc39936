"""What `verify`, `ls`, the reader, `diff` and `recover` do with each forgery, as a table: one rule says what a run is.

`python -m tests.proof.test_forgeries_in_verbs` writes the table again.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import probes
from probes.cli import cli
from probes.errors import FileRefused, ProbesError
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.ledger_lines import breaches, read_ledgers
from tests.proof.runs import small, write_run
from tests.proof.test_forgeries import FORGERIES, LAUNCH, ONE, SEGMENTS, STARTED, launched

TABLE = Path(__file__).with_name("forgeries_in_verbs.txt")
COLUMNS = ("verify", "ls", "open", "diff", "recover")
EVERY = 8  # of the forgeries, so many are tried by one run of `make test`; torture tries all


def honest(folder: Path) -> Path:
    """The runs that are forged."""
    write_run(folder / ONE, epochs=2, source=small)
    for rank in range(2):
        write_run(folder / LAUNCH, epochs=2, source=small, rank=rank)
    for segment in (1, 2):
        write_run(folder / SEGMENTS, epochs=1, source=small, segment=segment, complete=segment == 2)
    launched(folder / STARTED)
    return folder


def row(good: Path, name: str, folder: Path) -> tuple[str, ...]:
    """The exit code and the first code of an error of each verb; of the reader how many captures it gives."""
    of, change = FORGERIES[name].of, FORGERIES[name].change
    run = Path(shutil.copytree(good / of, folder / "run"))
    change(run)
    calls: dict[str, Callable[[], str]] = {
        "verify": lambda: _said("verify", run),
        "ls": lambda: _said("ls", run),
        "open": lambda: _opened(run),
        "diff": lambda: _said("diff", "--read-all", run, good / of),
    }
    found = {verb: call() for verb, call in calls.items()}
    _agree(run, found)
    return (*found.values(), _said("recover", run))


def _said(verb: str, *words: object) -> str:
    done = CliRunner().invoke(cli, [verb, *map(str, words)])
    assert done.exit_code in (0, 1), done.output
    code = re.search(r"error\[([\w-]+)\]", done.output)
    return f"{done.exit_code}{f' {code[1]}' if code else ''}"


def _opened(run: Path) -> str:
    try:
        return str(len(list(probes.open(run)["acts", "fc1"])))
    except FileRefused as refused:
        return refused.code
    except ProbesError as error:
        return type(error).__name__


def _agree(run: Path, found: dict[str, str]) -> None:
    """What is not a run is one for no verb; `verify` is the only one that goes on to say what else is wrong."""
    codes = [breach.code for breach in breaches(read_ledgers(run))]
    try:
        launches(run)
    except FileRefused as refused:
        codes.append(refused.code)
    if codes:
        assert (found["open"], found["ls"], found["diff"]) == (codes[0], f"1 {codes[0]}", f"1 {codes[0]}")
        assert found["verify"].startswith("1 ")


def table(rows: dict[str, tuple[str, ...]]) -> str:
    """The rows as text."""
    lines = [("forgery", *COLUMNS), *((name, *cells) for name, cells in rows.items())]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return honest(tmp_path_factory.mktemp("honest"))


def kept() -> dict[str, tuple[str, ...]]:
    lines = TABLE.read_text("utf-8").splitlines()
    return {name: tuple(cells) for name, *cells in (re.split(r"  +", line) for line in lines[1:])}


def test_the_table_has_every_forgery() -> None:
    assert list(kept()) == list(FORGERIES), "run: python -m tests.proof.test_forgeries_in_verbs"


@pytest.mark.parametrize("name", list(FORGERIES)[::EVERY])
def test_each_verb_treats_a_forgery_as_the_table_says(good: Path, name: str, tmp_path: Path) -> None:
    assert row(good, name, tmp_path) == kept()[name]


@pytest.mark.torture
@pytest.mark.parametrize("name", FORGERIES)
def test_each_verb_treats_every_forgery_as_the_table_says(good: Path, name: str, tmp_path: Path) -> None:
    assert row(good, name, tmp_path) == kept()[name]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = honest(Path(place) / "honest")
        TABLE.write_text(table({name: row(made, name, Path(place) / str(number)) for number, name in enumerate(FORGERIES)}), "utf-8")
