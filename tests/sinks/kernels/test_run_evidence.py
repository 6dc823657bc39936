from __future__ import annotations

from pathlib import Path

import numpy as np

from probes.sinks.kernels.run_evidence import evidence, verify_command
from tests.reader.recorded import Recording


def test_all_names_the_sealed_files_that_the_ledger_lists_and_no_others(tmp_path: Path) -> None:
    Recording(tmp_path).take(np.zeros(1)).sealed()
    Recording(tmp_path, 1).take(np.zeros(1)).left()
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "other.h5").write_text("")
    with (tmp_path / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"file": "../outside.h5"}\nnonsense\n[]\n')
    (tmp_path.parent / "outside.h5").write_text("")
    assert [path.name for path in evidence(tmp_path, "all")] == ["run.json", "ledger.jsonl", "epoch-0000.h5"]
    assert [path.name for path in evidence(tmp_path, "proof")] == ["run.json", "ledger.jsonl"]
    assert evidence(tmp_path, "none") == evidence(None, "all") == []


def test_the_command_that_verifies_is_quoted_for_a_shell() -> None:
    found = verify_command({"probes.directory": "runs/a b"}, {"probes.ledger_head": "617e"})
    assert found == {"probes.verify": "probes verify 'runs/a b' --anchor 617e"}
    assert verify_command({"probes.directory": "runs/a"}, {}) == {}
