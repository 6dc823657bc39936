"""The verifier in JavaScript, written from `schemas/` alone, agrees with `probes verify` on runs, forgeries, damage and old releases."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import probes
from probes.clock import SeriesKey
from probes.digest import blake3_hex
from probes.proof.verify import verify
from tests import independent_verifier
from tests.proof import damage
from tests.proof.forger import stated
from tests.proof.runs import One, small, write_run
from tests.proof.test_forgeries import FORGERIES, LAUNCH, ONE, SEGMENTS, STARTED, late, launched

PROGRAM = Path(__file__).parent / "javascript" / "verify.mjs"
CORPUS = Path(__file__).parents[1] / "release_corpus"
UNKNOWN = "which this program does not have"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def answers(requests: Iterable[tuple[Path, str]]) -> list[str]:
    """What the program says of each run and its anchor, which may be empty; an empty answer where the run verifies."""
    lines = [json.dumps([str(path), *([anchor] if anchor else [])]) for path, anchor in requests]
    done = subprocess.run(["node", str(PROGRAM)], input="\n".join(lines), capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split("\n")[: len(lines)]


def test_unchanged_runs_verify_with_and_without_their_anchors(tmp_path: Path) -> None:
    write_run(tmp_path / "one", gaps=True)
    write_run(tmp_path / "gzip", epochs=1, compression="gzip")
    for rank in range(2):
        write_run(tmp_path / "ranks", source=small, rank=rank)
    write_run(tmp_path / "resumed", source=small, epochs=1, complete=False)
    write_run(tmp_path / "resumed", source=small, epochs=1, attempt=2)
    late(tmp_path / "late")
    runs = sorted(tmp_path.iterdir())
    assert answers([(run, anchor) for run in runs for anchor in ("", verify(run).head)]) == [""] * 10
    (tmp_path / "late" / "spec.yaml").write_bytes(b"version: 1\n")
    assert answers([(tmp_path / "late", "")]) != [""]


def test_names_in_all_scripts_of_any_length_verify_in_every_language(tmp_path: Path) -> None:
    """Names that differ in case, or in their normal form of Unicode only, and the longest that a file can have."""
    names = (
        "layer",
        "Layer",
        "caf\u00e9",
        "cafe\u0301",
        "\u5c42.\u0441\u043b\u043e\u0439",
        "\U0001f9e0",
        "a b/c%d:e@f~g",
        "..",
        "",
        "x" * 255,
        "\u00e9" * 127,
        "n\0m",
        "\u202e",
        "\ufeff",
    )

    def strange(epoch: int) -> Iterator[One]:
        for number, name in enumerate(names):
            for step in range(2):
                bits = np.full(3, number + step, "f4")
                yield One(
                    SeriesKey("acts", name, "output", "train"),
                    "float32",
                    bits,
                    step,
                    dims=(name or "n",) if number in (2, 3, 4, 5) else None,
                )

    run = tmp_path / "run"
    write_run(run, epochs=1, source=strange)
    assert verify(run).ok
    assert independent_verifier.verifies(run)
    assert answers([(run, verify(run).head)]) == [""]
    found = probes.open(run).sel(phase="train")
    assert [found["acts", name, "output"].numpy()[0, 0] for name in names] == [*range(len(names))]


def test_every_forgery_gets_the_same_answer(tmp_path: Path) -> None:
    write_run(tmp_path / ONE, epochs=2, source=small)
    for rank in range(2):
        write_run(tmp_path / LAUNCH, epochs=2, source=small, rank=rank)
    for segment in (1, 2):
        write_run(tmp_path / SEGMENTS, epochs=1, source=small, segment=segment, complete=segment == 2)
    launched(tmp_path / STARTED)
    heads = {name: verify(tmp_path / name).head for name in (ONE, LAUNCH, SEGMENTS, STARTED)}
    requests: list[tuple[Path, str]] = []
    for number, forgery in enumerate(FORGERIES.values()):
        run = Path(shutil.copytree(tmp_path / forgery.of, tmp_path / str(number) / "run"))
        forgery.change(run)
        requests += [(run, ""), (run, heads[forgery.of])]
    found = [bool(answer) for answer in answers(requests)]
    wanted = [code != 0 for forgery in FORGERIES.values() for code in (forgery.alone, forgery.anchored)]
    names = [f"{name}{anchored}" for name in FORGERIES for anchored in ("", ", anchored")]
    assert dict(zip(names, found, strict=True)) == dict(zip(names, wanted, strict=True))


def test_runs_of_earlier_releases_verify_under_their_heads(tmp_path: Path) -> None:
    for archive in sorted(CORPUS.glob("v*.tar.xz")):
        with tarfile.open(archive) as opened:
            opened.extractall(tmp_path, filter="data")
        expected = json.loads(Path(str(archive).replace(".tar.xz", ".json")).read_text("utf-8"))["runs"]
        runs = {name: about["head"] for name, about in expected.items() if not about["journals"]}
        found = dict(zip(runs, answers((tmp_path / name, head) for name, head in runs.items()), strict=True))
        assert {name: answer for name, answer in found.items() if answer and UNKNOWN not in answer} == {}
        assert list(found.values()).count("") >= len(found) - 2  # some are compressed in ways that node does not have


def test_a_sample_of_all_damage_is_found(tmp_path: Path) -> None:
    sealed = damage.sealed(tmp_path / "run")
    shutil.copytree(sealed, tmp_path / "good")
    requests = []
    for number, one in enumerate([*damage.damages(sealed, every_byte=False)][3::17] + [*damage.flips(sealed)][5::997]):
        run = Path(shutil.copytree(tmp_path / "good", tmp_path / "damaged" / str(number)))
        (run / one.file).write_bytes(one.change((run / one.file).read_bytes()))
        requests.append((run, ""))
    assert all(answers(requests))


def test_a_byte_of_a_file_that_only_its_own_digests_cover_is_found(tmp_path: Path) -> None:
    """The ledger is written again over the changed file, so that only the content of the file shows the change."""
    write_run(tmp_path / "good", epochs=1, source=small)
    requests = []
    for number, one in enumerate([*damage.flips(tmp_path / "good")][11::1499]):
        run = Path(shutil.copytree(tmp_path / "good", tmp_path / "changed" / str(number)))
        content = one.change((run / one.file).read_bytes())
        (run / one.file).write_bytes(content)
        stated(run, bytes=len(content), file_blake3=blake3_hex(content))
        requests.append((run, ""))
    assert all(answers(requests))
    assert not any(verify(run).ok for run, _ in requests)
