"""Reading a run while another process writes, seals and resumes it."""

from __future__ import annotations

from pathlib import Path

from probes.journal.writer import Journal
from probes.reader.run import open as open_run
from probes.run_directory.ledger import Ledger, current
from probes.run_directory.recover import recover
from probes.run_directory.seal import JournalSealer, seal
from tests.run_directory.epochs import ACTS, HEAD, Shot, begin, fill, payloads


def test_an_open_run_continues_while_its_journals_are_sealed_and_overwritten(tmp_path: Path) -> None:
    shots = [Shot(step=step, data=bytes([step]) * 24) for step in range(4)]
    journal = begin(tmp_path)
    fill(journal, shots[:3])
    beside, early = open_run(tmp_path), open_run(tmp_path)
    series = beside[ACTS.probe, ACTS.target, ACTS.leaf]
    before = series[0].value.tobytes()
    assert [found.name for found in early._directory.current] == ["epoch-0003.journal"]
    fill(journal, shots[3:])
    journal.end(True, "", {})
    sealer = JournalSealer(tmp_path)
    sealer.seal(journal.path.name, {"spare": True})
    assert series[1].value.tobytes() == shots[1].payload, "the journal is still there, though without its name"
    Journal.create(tmp_path / "epoch-0004.journal", HEAD | {"epoch": 4}, spare=tmp_path / "spare.journal").close()
    assert [one.value.tobytes() for one in series] == payloads(shots[:3]), "it was written over, so the file is read"
    assert before == shots[0].payload
    assert [one.value.tobytes() for one in early[ACTS.probe, ACTS.target, ACTS.leaf]] == payloads(shots)


def test_an_attempt_with_fewer_captures_does_not_hide_one_with_more(tmp_path: Path) -> None:
    for attempt, count in ((1, 3), (2, 1), (3, 0)):
        journal = begin(tmp_path, f"epoch-0003{f'.a{attempt}' if attempt > 1 else ''}.journal", {"attempt": attempt})
        fill(journal, [Shot(step=step) for step in range(count)]) if count else None
        journal.close()
        if attempt == 1:
            seal(journal.path, tmp_path)
    run = open_run(tmp_path)
    assert [(one.attempt, one.captures, one.current) for one in run.attempts] == [(1, 3, True), (2, 1, False), (3, 0, False)]
    assert run.not_shown == ["epoch 3: attempt 2 (unsealed, 1 capture) is not shown, since attempt 1 holds 3"]
    assert repr(run).endswith("1 epoch; epoch 3: attempt 2 (unsealed, 1 capture) is not shown, since attempt 1 holds 3>")
    recover(tmp_path)
    assert [(one.attempt, one.current) for one in open_run(tmp_path).attempts] == [(1, True), (2, False), (3, False)]
    assert {line.file for line in current(Ledger(tmp_path / "ledger.jsonl").entries).values()} == {"epoch-0003.h5"}
    assert [line.supersedes for line in Ledger(tmp_path / "ledger.jsonl").entries] == [None, None, None]
