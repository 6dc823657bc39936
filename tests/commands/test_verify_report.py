from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.commands.verify import verify as command
from probes.errors import UsageError
from probes.proof.finding import Finding, Verdict
from probes.proof.verify import verify
from probes.report.page import html, markdown
from probes.report.proof_page import NO, PARTLY, YES, blocks
from tests.proof.forger import attempt
from tests.proof.runs import manifest, small, write_run


class Cells(HTMLParser):
    """The rows of all tables, and every tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run", epochs=2, source=small)
    return tmp_path / "run"


def answers(verdict: Verdict) -> list[str]:
    return [row[1] for row in Cells(html(blocks(verdict))).rows[1:6]]


def test_the_page_states_the_proofs_and_their_limits(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--report", str(tmp_path / "page.html"), "--anchor", verify(run).head])
    assert done.exit_code == 0
    page = Cells((tmp_path / "page.html").read_text("utf-8"))
    assert [row[1] for row in page.rows[1:6]] == [YES] * 5
    assert any(row[0] == "SHA-256 of the script" or row[0] == "PyTorch" for row in page.rows)
    assert any("epoch-0001.h5" in row[0] for row in page.rows)
    assert "script" not in page.tags


def test_without_an_anchor_the_page_warns_that_the_run_may_be_another(run: Path) -> None:
    assert answers(verify(run)) == [YES, YES, YES, YES, NO]


def test_a_run_that_grew_is_proven_in_part(run: Path) -> None:
    head = verify(run).head
    write_run(run, epochs=3, first=2, source=small)
    assert answers(verify(run, anchor=head))[-1] == PARTLY


def test_a_run_that_grew_and_was_changed_is_not_proven_in_part(run: Path) -> None:
    head = verify(run).head
    write_run(run, epochs=3, first=2, source=small)
    content = bytearray((run / "epoch-0001.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "epoch-0001.h5").write_bytes(content)
    assert answers(verify(run, anchor=head))[-1] == NO


def test_a_replaced_epoch_and_a_changed_byte_are_not_proven(run: Path) -> None:
    head = verify(run).head
    attempt(run)
    assert answers(verify(run, anchor=head))[-1] == NO
    content = bytearray((run / "epoch-0001.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "epoch-0001.h5").write_bytes(content)
    done = CliRunner().invoke(command, [str(run), "--report", str(run.parent / "page.md")])
    assert done.exit_code == 1
    assert "does not verify" in (run.parent / "page.md").read_text("utf-8")
    assert NO in answers(verify(run))[:4]


def test_a_file_alone_has_no_ledger_as_a_proof(run: Path) -> None:
    (run / "epoch-0001.h5").rename(run.parent / "some.h5")
    assert answers(verify(run.parent / "some.h5")) == [YES, YES, NO, YES, NO]


def test_no_text_of_an_unknown_author_becomes_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>|`x`[a](javascript:x)\n# heading \x1b[2J\u202e"
    verdict = Verdict(evil, evil, (Finding("bit-flip", evil, evil),), ())
    page, text = html(blocks(verdict, origin=False)), markdown(blocks(verdict, origin=False))
    assert Cells(page).tags <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "td", "th"}
    assert not {"\x1b", "\u202e"} & {*page, *text}
    assert "<script" not in text
    assert "\n# heading" not in text
    write_run(tmp_path / "run", epochs=1, source=small, origin=manifest().model_copy(update={"run_id": evil}))
    assert "script" not in Cells(html(blocks(verify(tmp_path / "run")))).tags


def test_a_page_of_another_kind_is_refused(run: Path) -> None:
    done = CliRunner().invoke(command, [str(run), "--report", "page.pdf"])
    assert isinstance(done.exception, UsageError)
