"""The table of weights in a closing record: its digest follows from it, in each of the three verifiers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import probes
from probes.digest import blake3_hex, canonical
from probes.errors import FileRefused
from probes.proof.untrusted import verify_untrusted
from tests import independent_verifier
from tests.proof.runs import small, write_run
from tests.proof.test_second_language import answers

WHOLE = {"name": "w", "role": "parameter", "dtype": "float32", "shape": [2, 3], "trained": True, "digest": "ab" * 32, "sum": "0" * 32}
TIED = {"name": "v", "role": "parameter", "dtype": "float32", "shape": [2, 3], "trained": True, "same_as": "w"}
EMPTY = {"name": "m", "role": "buffer", "dtype": "float32", "shape": [2], "trained": False}


def digest(*rows: Any) -> str:
    return blake3_hex(canonical({"": blake3_hex(canonical(sorted(rows)))}))


DIGEST = digest(["w", "float32", [2, 3], "ab" * 32], ["v", "float32", [2, 3], None])


def table(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"models": [{"name": "", "tensors": list(rows)}], **more}


CLOSINGS = {
    "all tensors": (table(WHOLE, TIED, weights=DIGEST), True),
    "a tensor without a digest, so no digest of all": (table(WHOLE, EMPTY), True),
    "no table, as in earlier releases": ({"weights": "cd" * 32}, True),
    "another digest": (table(WHOLE, TIED, weights="cd" * 32), False),
    "another tensor": (table(WHOLE | {"digest": "ac" * 32}, TIED, weights=DIGEST), False),
    "another shape": (table(WHOLE | {"shape": [3, 2]}, TIED, weights=DIGEST), False),
    "no digest of all": (table(WHOLE, TIED), False),
    "a digest of all although a tensor has none": (table(WHOLE, EMPTY, weights=DIGEST), False),
}


@pytest.mark.parametrize("name", CLOSINGS)
def test_the_digest_of_all_weights_follows_from_their_table(tmp_path: Path, name: str) -> None:
    closing, right = CLOSINGS[name]
    write_run(tmp_path / "run", epochs=1, source=small, closing=closing)
    found = probes.verify(tmp_path / "run")
    assert found.ok == right
    assert [one.code for one in found.findings if not one.note] == ([] if right else ["epoch-root"])
    assert independent_verifier.verifies(tmp_path / "run") == right
    if shutil.which("node"):
        assert (answers([(tmp_path / "run", "")]) == [""]) == right
    if right and "models" in closing:
        assert list(found.epoch_weights) == list(probes.open(tmp_path / "run").epoch_weights) == [0]


def test_a_verification_in_a_child_process_states_the_weights_of_epochs_too(tmp_path: Path) -> None:
    write_run(tmp_path / "run", epochs=2, source=small, closing=table(WHOLE, TIED, weights=DIGEST))
    found = verify_untrusted(tmp_path / "run").epoch_weights
    assert list(found) == [0, 1]
    assert found == probes.verify(tmp_path / "run").epoch_weights


@pytest.mark.parametrize("models", [3, [3], [{"name": ""}], [{"name": "", "tensors": [WHOLE | {"shape": "x"}]}], [{"tensors": [{}]}]])
def test_an_object_that_is_not_a_table_is_a_finding(tmp_path: Path, models: Any) -> None:
    write_run(tmp_path / "run", epochs=1, source=small, closing={"models": models})
    found = probes.verify(tmp_path / "run")
    assert [one.code for one in found.findings if not one.note] == ["epoch-root"]
    with pytest.raises(FileRefused, match="closing record"):
        _ = probes.open(tmp_path / "run").epoch_weights
