"""A few trials of every fault, so that `make test` finds most faults of `make torture`; and tests of the torture itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.pages import script
from tests.reader.recorded import KEY, Recording
from tests.torture import training
from tests.torture.__main__ import FAULTS, faults
from tests.torture.calls import read
from tests.torture.checking import acknowledged, check, examine
from tests.torture.disk import Disk
from tests.torture.nursery import ROOT, order_in
from tests.torture.report import Effort, Row, save, text
from tests.torture.shim import Calls, Fault

LONG = {
    "quota",
    "ranks",
    "strangers",
    "failing_disk",
    "mutants",
    "sealer_trouble",
    "exits",
    "million",
}
"""A minute of CPU and more, like the rest of the torture."""
TRACED = re.compile(r"^\d+ +(\w+)\(.*\) += (-?\d+)")
KINDS = {
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev", "pwritev2"), Calls.WRITE),
    **dict.fromkeys(("fsync", "fdatasync"), Calls.SYNC),
    **dict.fromkeys(("rename", "renameat", "renameat2"), Calls.RENAME),
    **dict.fromkeys(("unlink", "unlinkat"), Calls.UNLINK),
    **dict.fromkeys(("link", "linkat"), Calls.LINK),
    "ftruncate": Calls.TRUNCATE,
    "fallocate": Calls.RESERVE,
}


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=pytest.mark.torture if fault in LONG else ()) for fault in FAULTS])
def test_a_little_of_every_fault_loses_nothing(fault: str, effort: Effort) -> None:
    rows = list(faults(fault)(effort))
    assert all(row.trials for row in rows)
    assert any(row.count.acknowledged for row in rows) or fault in ("crafted", "mutants", "heads", "strangers")
    assert all(row.ok for row in rows), "\n".join([text(rows), *(problem for row in rows for problem in row.count.problems)])


def trained(effort: Effort, **order: Any) -> dict[str, Any]:
    (answer,) = effort.nurseries.each([lambda place: {"examine": False, "steps": 4, "every": 2, **order}])
    return answer


def test_a_run_without_a_fault_keeps_everything(effort: Effort) -> None:
    answer = trained(effort)
    out, acks = Path(answer["order"]["out"]), acknowledged(Path(answer["order"]["acks"]))
    assert acks == [(epoch, step) for epoch in range(3) for step in range(4)]
    found = examine(out, acks, 2)
    assert (found.acknowledged, found.lost, found.wrong, found.problems) == (30, 0, 0, [])


def test_the_check_finds_lost_steps(effort: Effort) -> None:
    answer = trained(effort)
    out = Path(answer["order"]["out"])
    for epoch in (1, 2):
        (out / f"epoch-000{epoch}.h5").unlink()
    ledger = out / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    found = check(out, acknowledged(Path(answer["order"]["acks"])), 2)
    assert (found.acknowledged, found.lost) == (30, 20)


def test_the_check_finds_wrong_values(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    recording.take(training.small(0, 0), key=KEY._replace(probe="small", target="small"))
    recording.take(training.small(0, 1) + np.float32(0.5), key=KEY._replace(probe="small", target="small"), step=1)
    recording.sealed()
    found = check(tmp_path, [(0, 0), (0, 1)])
    assert (found.wrong, found.lost) == (1, 4), "one wrong, and of the two other series nothing"


@pytest.mark.torture
def test_the_shim_records_every_call_that_changes_the_disk(effort: Effort) -> None:
    """The system's own record of a run, against that of the shim: a call that the shim misses would never be made to fail."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    folder = effort.folder / "traced"
    folder.mkdir()
    log, trace = folder / "log", folder / "trace"
    fault = Fault().text(folder / "run", log)
    order = {**order_in(folder), "fault": fault, "sealer_fault": fault, "steps": 3, "every": 2, "examine": False}
    names = ",".join([*KINDS, "truncate", "copy_file_range", "sendfile", "symlink", "mknod"])
    command = ["strace", "-f", "-qq", "-y", "-e", f"trace={names}", "-E", f"LD_PRELOAD={effort.folder / 'shim.so'}", "-o", str(trace)]
    subprocess.run(
        [*command, sys.executable, "-m", "tests.torture.nursery"], cwd=ROOT, input=json.dumps(order) + "\n", text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    traced = [line for line in trace.read_text().splitlines() if f"{folder}/run" in line and "?" not in line.rsplit("=", 1)[-1]]
    found = Counter(KINDS[match[1]] for line in traced if (match := TRACED.match(line)))
    assert found == Counter(call.kind for call in read(log) if call.kind in KINDS.values())
    assert found[Calls.WRITE] > 60


def test_a_power_loss_keeps_synced_bytes_and_no_more_than_was_written(tmp_path: Path) -> None:
    from tests.torture.calls import Call

    disk = Disk(tmp_path / "run")
    path = str(tmp_path / "run" / "a")
    for kind, offset, data in (
        (Calls.CREATE, 0, b""), (Calls.WRITE, 0, b"x" * 2000), (Calls.SYNC, 0, b""), (Calls.WRITE, 2000, b"y" * 9000),
    ):  # fmt: skip
        disk.replay(Call(kind, path, "", offset, data, False))
    seen = set()
    for seed in range(60):
        place = tmp_path / str(seed)
        place.mkdir()
        disk.after_power_loss(Random(seed), place)
        content = (place / "a").read_bytes() if (place / "a").exists() else None
        assert content is None or (content[:2000] == b"x" * 2000 and set(content[2000:]) <= {0, ord("y")})
        seen.add(content)
    assert None in seen, "the name was never synced"
    assert len(seen) > 10


def test_the_table_names_every_figure(tmp_path: Path) -> None:
    row = Row("SIGKILL", trials=1200, seconds=3.4, note="everywhere")
    row.count.acknowledged = 5000
    assert text([row]).splitlines()[1].split() == ["SIGKILL", "1,200", "5,000", "0", "0", "3", "everywhere"]
    save(tmp_path / "table.json", [row], 7, 0.5)
    assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["acknowledged"] == 5000
    save(tmp_path / "table.json", [Row("EIO", trials=3)], 8, 1.0)
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [(row["fault"], row["seed"], row["N"]) for row in rows] == [("SIGKILL", 7, 0.5), ("EIO", 8, 1.0)]


def test_the_readme_has_the_counts_of_the_last_full_run() -> None:
    page = script("torture")
    assert page.table() in page.README.read_text(encoding="utf-8"), "run: make docs"
