from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from probes.commands.verify import verify
from probes.errors import UsageError
from tests.pages import ROOT
from tests.proof.forger import other
from tests.proof.runs import small, write_run


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen comes with OpenSSH")
def test_a_statement_is_signed_and_checked_by_the_commands_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    sign, check = re.findall(r"^ssh-keygen .*$", page, re.MULTILINE)
    write_run(tmp_path / "a", epochs=1, source=small)
    (tmp_path / "statement.json").write_text(CliRunner().invoke(verify, [str(tmp_path / "a"), "--in-toto"]).output)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", "key"], cwd=tmp_path, check=True)
    kind, key, _ = (tmp_path / "key.pub").read_text().split()
    (tmp_path / "allowed_signers").write_text(f"ada {kind} {key}\n")
    subprocess.run(sign.replace("~/.ssh/id_ed25519", "key"), shell=True, cwd=tmp_path, check=True, capture_output=True)
    assert subprocess.run(check, shell=True, cwd=tmp_path, check=False, capture_output=True).returncode == 0
    statement = tmp_path / "statement.json"
    statement.write_text(statement.read_text().replace("epoch-0000.h5", "epoch-0001.h5"))
    assert subprocess.run(check, shell=True, cwd=tmp_path, check=False, capture_output=True).returncode != 0


def test_a_statement_is_an_anchor_of_its_run(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=2, source=small)
    statement = tmp_path / "statement.json"
    statement.write_text(CliRunner().invoke(verify, [str(tmp_path / "a"), "--in-toto"]).output)
    anchored = ["--anchor", str(statement)]
    assert CliRunner().invoke(verify, [str(tmp_path / "a"), *anchored]).output.endswith("as anchored\n")
    write_run(tmp_path / "b", epochs=2, source=small, change=other)
    assert CliRunner().invoke(verify, [str(tmp_path / "b"), *anchored]).exit_code == 1
    for wrong in ('{"predicateType": "urn:torch-probes:captures:v1", "predicate": 1}', '{"predicateType": "x", "head": "x"}', "[]"):
        statement.write_text(wrong)
        refused = CliRunner().invoke(verify, [str(tmp_path / "a"), *anchored]).exception
        assert "is not an anchor" in str(refused)


def test_a_statement_of_several_runs_is_refused(tmp_path: Path) -> None:
    """It would name files next to the runs that nothing has verified, and no ledger head."""
    for name in ("a", "b"):
        write_run(tmp_path / "runs" / name, epochs=1, source=small)
    (tmp_path / "runs" / "notes.txt").write_text("anything\n")
    done = CliRunner().invoke(verify, [str(tmp_path / "runs"), "--in-toto"])
    assert isinstance(done.exception, UsageError)
    assert done.output == ""
