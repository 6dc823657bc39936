from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from probes.clock import SeriesKey
from probes.commands.diff import diff as command
from probes.errors import StorageError, UsageError
from probes.journal.writer import Journal
from probes.proof.comparison.difference import Difference
from probes.proof.comparison.provenance_diff import provenance_differences
from probes.proof.diff import diff
from probes.report.difference_text import markdown, text
from probes.run_directory.manifest import FileRecord, GitRecord
from tests.proof.runs import Change, One, captures, manifest, replaced, write_run


def changed(path: Path, change: Change, **options: Any) -> Difference:
    """Write a run and another one with a change, and compare them."""
    write_run(path / "a", **options)
    write_run(path / "b", change=change, **options)
    return diff(path / "a", path / "b")


def at(one: One, epoch: int, probe: str, step: int, call: int = 0, *, when: int = 1) -> bool:
    return (epoch, one.key.probe, one.step, one.call, one.key.phase) == (when, probe, step, call, "train")


def one_ulp(one: One, index: tuple[int, ...]) -> One:
    bits = one.bits.copy()
    bits.view(f"u{bits.itemsize}")[index] += 1
    return one._replace(bits=bits)


def status(found: Difference) -> dict[str, str]:
    return {str(one.key): one.status for one in found.series if one.status != "same"}


def test_two_runs_of_the_same_captures_are_the_same_byte_by_byte_and_by_digest(tmp_path: Path) -> None:
    read = changed(tmp_path, lambda one, epoch: one)
    assert read.verdict == "same"
    assert (read.counts["compared"], read.counts["by_digest"]) == (50, 0)
    found = diff(tmp_path / "a", tmp_path / "b", by_digest=True)
    assert found.verdict == "same"
    assert found.counts["compared"] == found.counts["by_digest"] == 50


@pytest.mark.parametrize("tolerance", [{}, {"atol": 1e9}])
def test_a_number_that_was_forged_under_its_digest_differs(tmp_path: Path, tolerance: dict[str, float]) -> None:
    write_run(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with h5py.File(tmp_path / "b" / "epoch-0001.h5", "r+") as file:
        file["captures/acts/fc1:output/values"][2, 0] += 1
    found = diff(tmp_path / "a", tmp_path / "b", **tolerance)
    assert found.verdict == ("same" if tolerance else "different")
    assert found.counts["contradicting"] == 1
    said = "the recorded digests of 1 capture agree although the values differ: a file was changed after it was sealed"
    assert said in text(found)
    assert said in markdown(found)


def test_values_that_were_not_read_are_not_reported_as_equal_bit_for_bit(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    write_run(tmp_path / "c", change=lambda one, epoch: one_ulp(one, (0,)) if at(one, epoch, "big", 2) else one)
    trusted = CliRunner().invoke(command, [str(tmp_path / "a"), str(tmp_path / "b"), "--by-digest"])
    assert trusted.output.endswith(
        "are the same if their recorded digests are true: 50 captures compared by digest, values not read "
        "(`--read-all` reads them, `probes verify` checks the digests)\n"
    )
    in_part = CliRunner().invoke(command, [str(tmp_path / "a"), str(tmp_path / "c"), "--by-digest", "--bitwise"])
    said = r"different: 49 captures compared by digest, values not read \(.*\), 1 capture compared bit for bit\n$"
    assert re.search(said, in_part.output)
    read = CliRunner().invoke(command, [str(tmp_path / "a"), str(tmp_path / "b"), "--read-all", "--bitwise"])
    assert read.output.endswith("are the same: 50 captures compared bit for bit\n")


def test_compression_and_the_order_of_arrival_change_no_digest(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", compression="gzip", source=lambda epoch: iter(list(captures(epoch))[::-1]))
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "same"
    assert diff(tmp_path / "a", tmp_path / "b", by_digest=True).verdict == "same"


def test_one_ulp_in_one_element_is_found_at_its_exact_place(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(
        tmp_path / "b", change=lambda one, epoch: one_ulp(one, (1, 1)) if at(one, epoch, "acts", 2, 1) and one.bits.ndim == 2 else one
    )
    first = diff(tmp_path / "a", tmp_path / "b", bitwise=True).first
    assert first is not None
    assert first.key == SeriesKey("acts", "fc1", "output", "train")
    assert (first.clock.epoch, first.clock.step, first.clock.call, first.index) == (1, 2, 1, (1, 1))
    assert (first.ulp, first.elements, first.max_ulp) == (1, 1, 1)
    assert first.a != first.b
    assert int(first.bits_b, 16) - int(first.bits_a, 16) == 1
    a, b = (float(np.uint32(int(bits, 16)).view(np.float32)) for bits in (first.bits_a, first.bits_b))
    assert first.max_abs == abs(b - a)
    assert first.cosine == pytest.approx(1, rel=2**-40), "the angle is less than the change of a float32, and the cosine its square"


def test_the_first_divergence_is_first_by_clock_then_by_the_plan(tmp_path: Path) -> None:
    def change(one: One, epoch: int) -> One:
        hit = (at(one, epoch, "grads", 1) or at(one, epoch, "big", 1) or at(one, epoch, "acts", 2)) and one.dtype != "bfloat16"
        return one._replace(bits=one.bits + 1) if hit else one

    first = changed(tmp_path, change).first
    assert first is not None
    assert (first.key.probe, first.clock.step) == ("big", 1)


def test_missing_and_extra_captures_and_series_are_reported_separately(tmp_path: Path) -> None:
    write_run(tmp_path / "a", change=lambda one, epoch: None if one.key.probe == "rag" else one)
    write_run(tmp_path / "b", change=lambda one, epoch: None if at(one, epoch, "big", 1) or one.key.probe == "grads" else one)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different"
    assert status(found) == {"big/fc1:output": "missing", "grads/fc1.weight:grad": "missing", "rag/:output.0": "extra"}
    big = next(one for one in found.series if one.key.probe == "big")
    assert (big.missing, big.compared) == (1, 7)
    assert big.gap is not None
    assert (big.gap.epoch, big.gap.step) == (1, 1)


def test_a_missing_epoch_is_missing_captures(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=3)
    write_run(tmp_path / "b", epochs=2)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.counts["missing"] == 25
    assert diff(tmp_path / "b", tmp_path / "a").counts["extra"] == 25


@pytest.mark.parametrize(("name", "value"), [("rtol", math.nan), ("atol", math.inf), ("atol", math.nan), ("rtol", -1.0)])
def test_a_tolerance_that_every_run_is_within_is_refused(name: str, value: float, tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1)
    with pytest.raises(UsageError, match=f"`{name}` must be a finite number"):
        diff(tmp_path / "a", tmp_path / "a", **{name: value})


def test_another_shape_or_dtype_is_not_comparable_and_has_a_reason(tmp_path: Path) -> None:
    def change(one: One, epoch: int) -> One:
        if one.key.probe == "big":
            return one._replace(bits=one.bits[:-1])
        return one._replace(bits=one.bits.view("<f8"), dtype="float64") if one.key.probe == "rag" else one

    found = changed(tmp_path, change)
    assert status(found) == {"big/fc1:output": "incomparable", "rag/:output.0": "incomparable"}
    reasons = {one.key.probe: one.reason for one in found.series}
    assert reasons["big"] == "shape [20000] in the first, [19999] in the second"
    assert reasons["rag"] == "`int64` in the first, `float64` in the second"
    assert found.verdict == "incomparable"


def test_runs_without_a_common_series_are_not_comparable(tmp_path: Path) -> None:
    write_run(tmp_path / "a", change=lambda one, epoch: one if one.key.probe == "big" else None)
    write_run(tmp_path / "b", change=lambda one, epoch: one if one.key.probe == "rag" else None)
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "incomparable"


def test_gaps_that_only_one_run_has_are_a_difference(tmp_path: Path) -> None:
    write_run(tmp_path / "a", gaps=True, epochs=1)
    write_run(tmp_path / "b", epochs=1)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.verdict == "different"
    assert [(gap.key.target, gap.a, gap.b) for gap in found.gaps] == [("fc9", 1, 0)]
    for said in (text(found), markdown(found)):
        assert "epoch 0, missing captures of acts/fc9:output: 1 in A, 0 in B (never called)" in said


def test_gaps_of_a_series_that_has_another_name_in_the_other_run_do_not_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Journal.commit
    for name, before in (("a", ""), ("parallel", "module.")):

        def named(one: Journal, phase: str, step: int, ticks: int, annex: dict[str, Any], before: str = before) -> Any:
            gaps = {"gaps": [["acts", f"{before}fc9", "output", phase, "never called", 1]]} if "gaps" in annex else {}
            return commit(one, phase, step, ticks, annex | gaps)

        monkeypatch.setattr(Journal, "commit", named)
        write_run(
            tmp_path / name,
            epochs=1,
            gaps=True,
            change=lambda one, epoch, before=before: one._replace(key=one.key._replace(target=f"{before}{one.key.target}")),
        )
    assert diff(tmp_path / "a", tmp_path / "parallel").same


def test_tolerances_come_from_the_spec_by_dtype_and_can_be_overridden(tmp_path: Path) -> None:
    def change(one: One, epoch: int) -> One:
        return one._replace(bits=one.bits + one.bits.dtype.type(5e-4)) if one.dtype in ("float32", "float64") else one

    found = changed(tmp_path, change, epochs=1)
    assert found.tolerances == {"float32": {"rtol": 0.0, "atol": 0.001}}
    assert status(found) == {
        "acts/fc1:output": "within",
        "acts/fc1:output@eval": "within",
        "big/fc1:output": "within",
        "grads/fc1.weight:grad": "different",
    }
    assert diff(tmp_path / "a", tmp_path / "b", bitwise=True).counts["different"] == 17
    assert diff(tmp_path / "a", tmp_path / "b", atol=1e-3).verdict == "same"
    assert diff(tmp_path / "a", tmp_path / "b", rtol=1e-9).counts["different"] == 17
    with pytest.raises(UsageError, match="bitwise"):
        diff(tmp_path / "a", tmp_path / "b", bitwise=True, rtol=1.0)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrappers_do_not_matter(tmp_path: Path, prefix: str) -> None:
    found = changed(tmp_path, lambda one, epoch: one._replace(key=one.key._replace(target=prefix + one.key.target)))
    assert found.verdict == "same"


def test_a_renamed_module_is_found_through_the_mapping(tmp_path: Path) -> None:
    def change(one: One, epoch: int) -> One:
        target = one.key.target.replace("fc1", "head.fc1")
        return one._replace(key=one.key._replace(target=target, leaf="output.0" if one.key.leaf == "output" else one.key.leaf))

    assert changed(tmp_path, change).verdict == "different"
    mapping = ["fc1:output=head.fc1:output.0", "fc1=head.fc1", ":output=:output.0"]
    found = diff(tmp_path / "a", tmp_path / "b", mapping=mapping)
    assert found.verdict == "same"
    assert found.series[0].other == SeriesKey("acts", "head.fc1", "output.0", "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [("fc1", "OLD=NEW"), ("x=y", "applies to no series"), ("fc1=zz", "leads to no series of the second run"), ("fc1=fc2", "would both be")],
)
def test_a_mapping_that_does_nothing_or_too_much_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write_run(tmp_path / "a", epochs=1)
    with pytest.raises(UsageError, match=message):
        diff(tmp_path / "a", tmp_path / "a", mapping=[text])


def test_a_nan_equals_itself_bit_for_bit_and_differs_from_a_number(tmp_path: Path) -> None:
    def nan(one: One, epoch: int) -> One:
        return one._replace(bits=np.full_like(one.bits, np.nan)) if at(one, epoch, "big", 0) else one

    write_run(tmp_path / "a", change=nan)
    write_run(tmp_path / "b", change=nan)
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "same"
    write_run(tmp_path / "c")
    found = diff(tmp_path / "a", tmp_path / "c", atol=1.0)
    assert found.first is not None
    assert (found.first.a, found.first.max_abs) == ("nan", float("inf"))
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["first"]["max_abs"] == "inf"


def test_the_sign_of_zero_differs_only_bit_for_bit(tmp_path: Path) -> None:
    def zero(value: float) -> Change:
        return lambda one, epoch: one._replace(bits=np.full_like(one.bits, value)) if at(one, epoch, "big", 0) else one

    write_run(tmp_path / "a", change=zero(0.0))
    write_run(tmp_path / "b", change=zero(-0.0))
    first = diff(tmp_path / "a", tmp_path / "b", bitwise=True).first
    assert first is not None
    assert (first.a, first.b, first.ulp, first.max_abs) == ("0.0", "-0.0", 0, 0.0)
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "same"


def test_differences_of_the_provenance_are_listed_with_likely_causes_first(tmp_path: Path) -> None:
    origin = manifest()
    other = replaced(
        origin,
        random=origin.random.model_copy(update={"torch_seed": 1}),
        environment=origin.environment.model_copy(update={"threads": 99}),
        packages={**origin.packages, "numpy": "0.1"},
        run_id="another",
        started="never",
    )
    write_run(tmp_path / "a", epochs=1)
    write_run(tmp_path / "b", epochs=1, origin=other)
    places = [one.place for one in diff(tmp_path / "a", tmp_path / "b").origins]
    assert places == ["random.torch_seed", "environment.threads", "packages.numpy"]


def test_reasons_about_arguments_trees_and_builds_are_sentences(tmp_path: Path) -> None:
    clean = GitRecord(commit="c" * 40, branch="main", dirty=False)
    dirty = clean.model_copy(update={"dirty": True, "diff": FileRecord(name="code.diff", sha256="d" * 64)})
    origin = manifest()
    a = origin.code.model_copy(update={"argv": (), "git": clean})
    b = origin.code.model_copy(update={"argv": ("--name", "two words"), "git": dirty})
    found = provenance_differences(
        origin.model_copy(update={"code": a, "torch_build": "one\n  - AVX2"}).model_dump(mode="json"),
        origin.model_copy(update={"code": b, "torch_build": "one\n  - AVX512\ntwo"}).model_dump(mode="json"),
    )
    assert [(one.place, one.a, one.b) for one in found] == [
        ("code.git.diff.sha256", "(clean tree)", "d" * 64),
        ("code.argv", "(no arguments)", "--name 'two words'"),
        ("torch_build", "AVX2", "AVX512; two"),
    ]


def test_unseeded_generators_are_in_one_last_line_and_only_if_something_differs(tmp_path: Path) -> None:
    origin = manifest()
    digests = dict.fromkeys(origin.random.digests, "ee" * 32) | {"numpy": "ee" * 32}
    other = origin.model_copy(update={"random": origin.random.model_copy(update={"digests": digests})})
    write_run(tmp_path / "a", epochs=1)
    write_run(tmp_path / "b", epochs=1, origin=other)
    write_run(tmp_path / "c", epochs=1, origin=other, change=lambda one, epoch: one._replace(bits=one.bits + 1))
    found = diff(tmp_path / "a", tmp_path / "c")
    assert [one.place for one in found.origins] == ["random.digests.torch", "random.digests.numpy", "random.digests.python"]
    assert [bool(one.note) for one in found.origins] == [False, True, True]
    line = "  random.digests.numpy, random.digests.python: seeded differently; matters only if the data or the model draw from it"
    assert line in text(found).splitlines()
    same = diff(tmp_path / "a", tmp_path / "b")
    assert [one.place for one in same.origins] == [one.place for one in found.origins]
    assert "seeded differently" not in text(same) + markdown(same)


def test_a_changed_weight_is_named(tmp_path: Path) -> None:
    origin = manifest()
    model = origin.models[0]
    tensors = (model.tensors[0].model_copy(update={"digest": "00" * 32}), *model.tensors[1:])
    other = replaced(origin, models=(model.model_copy(update={"tensors": tensors}),))
    write_run(tmp_path / "a", epochs=1)
    write_run(tmp_path / "b", epochs=1, origin=other)
    assert [one.place for one in diff(tmp_path / "a", tmp_path / "b").origins] == ["models.weights.fc1.weight"]


def test_a_journal_compares_with_the_file_it_becomes(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1)
    write_run(tmp_path / "b", epochs=1, seals=False)
    assert diff(tmp_path / "a", tmp_path / "b").verdict == "same"


def test_single_files_compare(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    assert diff(tmp_path / "a" / "epoch-0000.h5", tmp_path / "a" / "epoch-0000.h5").verdict == "same"
    with pytest.raises(StorageError, match="does not exist"):
        diff(tmp_path / "a", tmp_path / "none")


def test_the_command_reports_for_terminal_json_and_pull_request(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", change=lambda one, epoch: one_ulp(one, (7,)) if at(one, epoch, "big", 3) else one)
    runner, paths = CliRunner(), [str(tmp_path / "a"), str(tmp_path / "b")]
    text = runner.invoke(command, [*paths, "--bitwise", "--markdown", str(tmp_path / "report.md")])
    assert text.exit_code == 1
    assert "epoch 1, step 3: big/fc1:output" in text.output
    assert "1 ulp" in text.output
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("### Captures are different")
    assert "| `big/fc1:output` | different | 1 | 0 | 0 |" in report
    assert json.loads(runner.invoke(command, [*paths, "--bitwise", "--json"]).output)["verdict"] == "different"
    assert runner.invoke(command, [paths[0], paths[0]]).exit_code == 0


def test_diff_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1)
    path = str(tmp_path / "a")
    script = f"import sys; from probes.proof.diff import diff; assert diff({path!r}, {path!r}).same; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
