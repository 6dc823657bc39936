from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import probes
from probes.commands.verify import text as verdict_text
from probes.commands.verify import verify as command
from probes.digest import blake3_hex, canonical
from probes.errors import FileRefused, UsageError
from probes.proof.finding import CODES, NOTES, Verdict
from probes.proof.in_toto import statement
from probes.proof.untrusted import verify_untrusted
from probes.proof.verify import verify
from probes.run_directory.manifest import Manifest
from tests import independent_verifier
from tests.proof.forger import stated
from tests.proof.runs import manifest, replaced, small, write_run
from tests.reader.recorded import Recording

FILE = "epoch-0000.h5"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "good"
    write_run(path)
    return path


@pytest.fixture
def run(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "run"))


def codes(path: Path, **options: Any) -> list[str]:
    """The codes of what is wrong; the independent verifier has to agree on whether anything is."""
    verdict = verify(path, **options)
    if path.is_dir() and not options:
        assert independent_verifier.verifies(path) == verdict.ok, verdict.findings
    return sorted({finding.code for finding in verdict.findings if not finding.note})


def edit(run: Path, change: Callable[[h5py.File], None], file: str = FILE) -> None:
    with h5py.File(run / file, "r+") as opened:
        change(opened)


def described(group: Any) -> str:
    """The `described` digest of a group as it is now, as a forger would make it."""
    found = {}
    for name, value in group.attrs.items():
        if name not in ("digest", "described"):
            plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
            texts = [one.decode() for one in plain] if isinstance(plain, list) else plain
            found[name] = texts.decode() if isinstance(texts, bytes) else texts
    return blake3_hex(canonical(found))


def set_text(owner: Any, name: str, value: str) -> None:
    owner.attrs.create(name, np.bytes_(value.encode()))


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "ledger.jsonl").read_bytes().splitlines()]


def write_lines(run: Path, entries: list[dict[str, Any]]) -> None:
    (run / "ledger.jsonl").write_bytes(b"".join(canonical(entry) + b"\n" for entry in entries))


def test_a_good_run_verifies_and_so_does_each_of_its_files(run: Path) -> None:
    assert codes(run) == []
    assert codes(run / FILE) == []
    assert verify(run).files[0].captures == 25


def test_compression_changes_the_files_and_not_the_captures_root(tmp_path: Path) -> None:
    for compression in ("gzip", "none"):
        write_run(tmp_path / compression, compression=compression, epochs=1)
        assert codes(tmp_path / compression) == []
    gzip, none = (verify(tmp_path / compression).files[0] for compression in ("gzip", "none"))
    assert gzip.captures_root == none.captures_root
    assert gzip.file_blake3 != none.file_blake3


def test_a_later_attempt_or_another_rank_has_a_separate_manifest(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1, source=small)
    again = manifest().model_copy(update={"started": "later"})
    write_run(tmp_path / "a", epochs=1, source=small, attempt=2, origin=again)
    assert codes(tmp_path / "a") == []
    (tmp_path / "a" / "run.a2.json").write_text(manifest().text())
    assert codes(tmp_path / "a") == ["manifest-edited"]
    (tmp_path / "a" / "run.a2.json").unlink()
    assert codes(tmp_path / "a") == ["manifest-edited"]


def test_the_anchor_is_the_head_of_the_ledger(tmp_path: Path) -> None:
    head = write_run(tmp_path / "a")
    verdict = verify(tmp_path / "a", anchor=head[:32])
    assert verdict.ok
    assert verdict.anchored
    assert verdict.head == head


def test_a_changed_byte_of_a_large_capture_names_its_step(run: Path) -> None:
    edit(run, lambda file: file["captures/big/fc1:output/values"].__setitem__((2, 77), 9.0))
    finding = verify(run).findings[0]
    assert finding.code == "bit-flip"
    assert finding.series is not None
    assert finding.series.probe == "big"
    assert finding.steps == (2, 2)
    assert codes(run) == ["bit-flip"]


def test_a_changed_byte_of_a_small_capture_names_the_range_of_its_block(run: Path) -> None:
    edit(run, lambda file: file["captures/acts/fc1:output/values"].__setitem__((3, 0, 0), 9.0))
    finding = verify(run).findings[0]
    assert finding.code == "bit-flip"
    assert finding.steps == (0, 3)
    assert codes(run) == ["bit-flip"]


def test_every_cut_file_is_distinguished_from_an_appended_one(run: Path) -> None:
    good = (run / FILE).read_bytes()
    for size in (0, 1, 7, 8, 100, len(good) // 2, len(good) - 1):
        (run / FILE).write_bytes(good[:size])
        assert codes(run) == ["truncated"]
    (run / FILE).write_bytes(good + b"\0")
    assert codes(run) == ["trailing-bytes"]


def test_a_removed_step_is_named(run: Path) -> None:
    def drop(file: h5py.File) -> None:
        group = file["captures/acts/fc1:output"]
        for name in ("values", "step", "global_step", "call"):
            kept = np.delete(group[name][...], [2, 3], axis=0)
            kind = group[name].dtype
            del group[name]
            group.create_dataset(name, data=kept, dtype=kind)

    edit(run, drop)
    assert verify(run).findings[0].steps == (1, 1)
    assert codes(run) == ["step-missing"]
    assert codes(run / FILE) == ["step-missing"]


def _rename(file: h5py.File) -> None:
    file.move("captures/acts/fc2:output", "captures/acts/fc3:output")


def _forge_name(file: h5py.File) -> None:
    file.move("captures/acts/fc2:output", "captures/acts/fc3:output")
    group = file["captures/acts/fc3:output"]
    set_text(group, "target", "fc3")
    set_text(group, "described", described(group))


def _other_dtype(file: h5py.File) -> None:
    group = file["captures/rag/%:output.0"]
    set_text(group, "torch_dtype", "uint64")
    set_text(group, "described", described(group))
    values = group["values"][...].view("<u8")
    del group["values"]
    group.create_dataset("values", data=values)


def _downgrade(file: h5py.File) -> None:
    set_text(file, "digest_algorithm", "md5")
    set_text(file, "described", described(file))


def _swap_columns(file: h5py.File) -> None:
    file["captures/acts/fc2:output/step"][...] = [1, 0, 2, 3]


EDITS: dict[str, tuple[Callable[[h5py.File], Any], set[str]]] = {
    "an extra dataset": (lambda file: file.create_dataset("extra", data=[1]), {"extra-object"}),
    "an extra group": (lambda file: file.create_group("captures/acts/fc2:output/more"), {"extra-object"}),
    "an extra series": (lambda file: file.copy("captures/acts/fc2:output", "captures/acts/fc9:output"), {"series-renamed"}),
    "a series taken out": (lambda file: file.__delitem__("captures/acts/fc2:output"), {"missing-object"}),
    "a probe taken out": (lambda file: file.__delitem__("captures/grads"), {"missing-object"}),
    "a column taken out": (lambda file: file.__delitem__("captures/acts/fc2:output/global_step"), {"missing-object"}),
    "the block digests taken out": (lambda file: file.__delitem__("captures/acts/fc2:output/block_digest"), {"missing-object"}),
    "the spec taken out": (lambda file: file.__delitem__("spec"), {"missing-object", "spec-edited"}),
    "a renamed series": (_rename, {"series-renamed"}),
    "a series renamed with care": (_forge_name, {"clock-edited"}),
    "an edited attribute": (lambda file: set_text(file["captures/acts/fc2:output"], "hook", "backward"), {"attribute-edited"}),
    "an attribute added": (lambda file: set_text(file["captures/acts/fc2:output"], "about", "x"), {"attribute-edited"}),
    "an attribute taken out": (lambda file: file["captures/acts/fc2:output"].attrs.__delitem__("hook"), {"attribute-edited"}),
    "an attribute of a probe": (lambda file: set_text(file["captures/acts"], "NX_class", "x"), {"attribute-edited"}),
    "a root attribute": (lambda file: set_text(file, "run_id", "x"), {"attribute-edited"}),
    "an attribute of a column": (lambda file: set_text(file["captures/acts/fc2:output/values"], "units", "m"), {"file-root"}),
    "an attribute of the ids": (lambda file: set_text(file["steps/train"], "about", "m"), {"file-root"}),
    "another dtype": (_other_dtype, {"dtype-changed"}),
    "another algorithm": (_downgrade, {"algorithm"}),
    "an edited step": (_swap_columns, {"clock-edited"}),
    "an edited global step": (lambda file: file["captures/acts/fc2:output/global_step"].__setitem__(2, 9), {"clock-edited"}),
    "an edited offset": (lambda file: file["captures/rag/%:output.0/offset"].__setitem__(2, 9), {"clock-edited"}),
    "an edited row size": (lambda file: file["captures/grads/fc1.weight:grad/row_size"].__setitem__(slice(0, 2), [3, 2]), {"clock-edited"}),
    "an edited block digest": (lambda file: file["captures/big/fc1:output/block_digest"].__setitem__((1, 1), 0), {"digest-edited"}),
    "an edited series digest": (lambda file: set_text(file["captures/acts/fc2:output"], "digest", "0" * 64), {"digest-edited"}),
    "an edited sample id": (lambda file: file["steps/train/sample_id"].__setitem__(1, 9), {"file-root"}),
    "a soft link": (lambda file: file.__setitem__("captures/acts/x:output", h5py.SoftLink("/captures/acts/fc2:output")), {"soft-link"}),
    "an external link": (lambda file: file.__setitem__("captures/acts/x:output", h5py.ExternalLink("o.h5", "/")), {"external-link"}),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_structural_edit_is_found_with_its_code(run: Path, name: str) -> None:
    change, expected = EDITS[name]
    edit(run, change)
    assert set(codes(run)) == expected


@pytest.mark.parametrize("name", ["spec", "resolved", "manifest", "closing", "gaps"])
def test_an_edited_text_of_the_file_is_found(run: Path, name: str) -> None:
    expected = {
        "spec": "spec-edited",
        "resolved": "spec-edited",
        "manifest": "manifest-edited",
        "closing": "epoch-root",
        "gaps": "gaps-edited",
    }

    def change(file: h5py.File) -> None:
        text = file[name][()]
        del file[name]
        more = {"manifest": text.replace(b'"--lr"', b'"--lx"'), "closing": b'{"steps":{"train":5}}'}
        more["gaps"] = b'[["acts","fc2","output","train","never called",1]]'
        file.create_dataset(name, data=np.bytes_(more.get(name, text.replace(b"1", b"2", 1))))

    edit(run, change)
    assert codes(run) == [expected[name]]


def test_removed_gaps_are_found(tmp_path: Path) -> None:
    write_run(tmp_path / "a", gaps=True, epochs=1)

    def change(file: h5py.File) -> None:
        del file["gaps"]
        file.create_dataset("gaps", data=np.bytes_(b"[]"))

    edit(tmp_path / "a", change)
    assert codes(tmp_path / "a") == ["gaps-edited"]


def test_swapped_renamed_missing_and_added_epochs_have_separate_codes(run: Path) -> None:
    a, b, spare = run / FILE, run / "epoch-0001.h5", run / "spare"
    a.rename(spare)
    b.rename(a)
    spare.rename(b)
    assert codes(run) == ["files-swapped"]
    a.rename(spare)
    assert codes(run) == ["file-missing", "files-swapped"]
    spare.rename(run / "epoch-0007.h5")
    assert codes(run) == ["file-missing", "file-unlisted", "files-swapped"]


def test_an_edited_spec_or_manifest_next_to_the_files_is_found(run: Path) -> None:
    (run / "spec.yaml").write_bytes((run / "spec.yaml").read_bytes() + b"\n")
    assert codes(run) == ["spec-edited"]
    (run / "spec.yaml").unlink()
    assert codes(run) == ["spec-edited"]


@pytest.mark.parametrize("place", ['"--lr"', '"torch_seed": 0', '"role": "parameter"', '"started": "2', '{\n "algorithm"'])
def test_any_edit_of_a_manifest_is_found(run: Path, place: str) -> None:
    text = (run / "run.json").read_text()
    assert place in text
    (run / "run.json").write_text(text.replace(place, place[:-1] + ("x" if place[-1] != '"' else 'x"'), 1))
    assert codes(run) == ["manifest-edited"]
    (run / "run.json").unlink()
    assert codes(run) == ["manifest-edited"]


def test_a_saved_difference_to_the_commit_is_checked(tmp_path: Path) -> None:
    from probes.run_directory.manifest import FileRecord, GitRecord

    git = GitRecord(commit="c" * 40, branch="main", dirty=True, diff=FileRecord(name="code.diff", sha256="00" * 32))
    origin = manifest()
    write_run(tmp_path / "a", origin=replaced(origin, code=origin.code.model_copy(update={"git": git})), epochs=1)
    assert codes(tmp_path / "a") == ["diff-edited"]


@pytest.mark.parametrize(("name", "later"), [("format", "manifest.v2"), ("proof", "proof.v3")])
def test_a_manifest_of_a_later_release_is_not_called_edited(tmp_path: Path, name: str, later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Manifest.text
    monkeypatch.setattr(Manifest, "text", lambda one: re.sub(f'"{name}": "[^"]*"', f'"{name}": "{later}"', text(one)))
    write_run(tmp_path / "a", epochs=1, source=small)
    found = verify(tmp_path / "a").findings
    assert [(one.code, one.file) for one in found if not one.note] == [("newer-format", "run.json"), ("newer-format", "epoch-0000.h5")]
    assert found[0].message.startswith(f'has the {name} "{later}"; this release reads ')
    with pytest.raises(FileRefused, match=r"error\[newer-format\]: the manifest of .* has the "):
        _ = probes.open(tmp_path / "a").manifest


def _ledger_edit(field: str, value: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    return lambda entries: [entries[0], entries[1] | {field: value}, *entries[2:]]


LEDGER: dict[str, tuple[Callable[[list[dict[str, Any]]], list[dict[str, Any]]], set[str]]] = {
    "two lines swapped": (lambda lines: [lines[1], lines[0], lines[2]], {"ledger-reordered"}),
    "reversed": (lambda lines: lines[::-1], {"ledger-reordered"}),
    "the first line out": (lambda lines: lines[1:], {"ledger-line-missing", "file-unlisted"}),
    "a middle line out": (lambda lines: [lines[0], lines[2]], {"ledger-line-missing", "file-unlisted"}),
    "the last line out": (lambda lines: lines[:2], {"file-unlisted"}),
    "a line twice": (lambda lines: [*lines, lines[2]], {"ledger-edited"}),
    "an edited reason": (_ledger_edit("reason", "x"), {"ledger-edited"}),
    "an edited count": (_ledger_edit("captures", 3), {"ledger-edited"}),
    "an edited root": (_ledger_edit("captures_root", "0" * 64), {"ledger-edited"}),
    "an edited size": (_ledger_edit("bytes", 1), {"ledger-edited"}),
    "an edited hash": (_ledger_edit("file_blake3", "0" * 64), {"ledger-edited", "file-changed"}),
    "an unknown key": (_ledger_edit("extra", 1), {"ledger-edited"}),
    "another format": (_ledger_edit("format", "ledger.v9"), {"newer-format", "ledger-edited"}),
}


@pytest.mark.parametrize("name", LEDGER)
def test_an_edited_ledger_is_found_with_its_code(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "a", epochs=3, source=small)
    change, expected = LEDGER[name]
    write_lines(tmp_path / "a", change(lines(tmp_path / "a")))
    found = set(codes(tmp_path / "a"))
    assert found & expected
    assert found <= expected | {"file-unlisted"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("reason", "x"), ("captures", 3), ("complete", False), ("epoch", 9), ("attempt", 2), ("epoch_root", "0" * 64), ("supersedes", "x")],
)
def test_an_edit_of_the_last_line_is_found_without_a_following_line(tmp_path: Path, field: str, value: Any) -> None:
    write_run(tmp_path / "a", epochs=1, source=small)
    write_lines(tmp_path / "a", [lines(tmp_path / "a")[0] | {field: value}])
    assert set(codes(tmp_path / "a")) - {"ledger-misplaced"} <= {"ledger-edited"}
    assert codes(tmp_path / "a")


def test_a_run_whose_ledgers_were_taken_out_is_not_as_anchored(tmp_path: Path) -> None:
    head = write_run(tmp_path / "a", epochs=1, source=small)
    (tmp_path / "a" / "ledger.jsonl").unlink()
    assert codes(tmp_path / "a", anchor=head) == ["ledger-missing", "ledger-rolled-back"]
    (tmp_path / "a" / FILE).unlink()
    assert codes(tmp_path / "a", anchor=head) == ["ledger-rolled-back"]


def test_a_ledger_that_was_rolled_back_with_its_files_is_found_only_with_the_anchor(tmp_path: Path) -> None:
    head = write_run(tmp_path / "a", epochs=3, source=small)
    write_lines(tmp_path / "a", lines(tmp_path / "a")[:2])
    (tmp_path / "a" / "epoch-0002.h5").unlink()
    assert codes(tmp_path / "a") == []
    assert codes(tmp_path / "a", anchor=head) == ["ledger-rolled-back"]


def test_an_anchor_remains_valid_while_the_run_continues(tmp_path: Path) -> None:
    head = write_run(tmp_path / "a", epochs=1, source=small)
    write_run(tmp_path / "a", epochs=2, first=1, source=small)
    verdict = verify(tmp_path / "a", anchor=head)
    assert verdict.ok
    assert [finding.code for finding in verdict.findings] == ["ledger-grown"]


def test_a_missing_ledger_is_not_a_verified_run(run: Path) -> None:
    (run / "ledger.jsonl").unlink()
    assert codes(run) == ["ledger-missing"]
    anchored = verify(run, anchor="0" * 64)
    assert not anchored.ok
    assert {finding.code for finding in anchored.findings} == {"ledger-missing", "ledger-rolled-back", "uncovered"}


def test_half_a_line_at_the_end_of_the_ledger_is_only_noted(run: Path) -> None:
    with (run / "ledger.jsonl").open("ab") as file:
        file.write(b'{"half')
    assert [finding.code for finding in verify(run).findings] == ["ledger-torn"]


def test_an_unsealed_epoch_does_not_verify(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1, source=small)
    write_run(tmp_path / "a", epochs=2, first=1, source=small, seals=False)
    assert codes(tmp_path / "a") == ["unsealed"]


def test_incomplete_superseded_and_gapped_epochs_are_noted_and_verify(tmp_path: Path) -> None:
    write_run(tmp_path / "a", epochs=1, source=small, complete=False, gaps=True)
    write_run(tmp_path / "a", epochs=1, source=small, attempt=2)
    verdict = verify(tmp_path / "a")
    assert verdict.ok
    assert {finding.code for finding in verdict.findings} == {"incomplete", "gaps", "superseded"}


def test_a_file_that_is_not_a_capture_file_is_refused_with_its_code(run: Path) -> None:
    (run / FILE).write_bytes(b"PK" + (run / FILE).read_bytes()[2:])
    assert codes(run) == ["not-hdf5"]
    (run / FILE).unlink()
    with h5py.File(run / FILE, "w") as file:
        file.create_dataset("x", data=np.zeros(200_000))
    assert codes(run) == ["not-a-capture-file"]


def test_an_empty_directory_has_nothing_to_verify(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ledger.jsonl").write_bytes(b"")
    (tmp_path / "a" / "run.json").write_text(manifest().text())
    assert "nothing" in codes(tmp_path / "a") or codes(tmp_path / "a") == ["spec-edited"]


def test_a_hostile_file_takes_down_no_more_than_the_child(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verify_untrusted(run)
    assert replace(found, findings=tuple(one for one in found.findings if one.code != "unconfined")) == verify(run)
    interpreter = tmp_path / "python3"
    interpreter.symlink_to("/bin/false")
    monkeypatch.setattr("sys.executable", str(interpreter))
    found = verify_untrusted(run)
    assert [finding.code for finding in found.findings] == ["crashed"]


def test_the_child_of_untrusted_runs_no_code_of_the_working_directory(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "of-a-stranger"
    (folder / "probes").mkdir(parents=True)
    for name in ("json.py", "h5py.py", "sitecustomize.py", "probes/__init__.py"):
        (folder / name).write_text("print('run verifies'); raise SystemExit(0)\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    (run / FILE).write_bytes((run / FILE).read_bytes()[:-9])
    done = CliRunner().invoke(command, [str(run), "--untrusted"])
    assert done.exit_code == 1
    assert "run verifies" not in done.output


def test_verify_needs_no_torch(run: Path) -> None:
    script = f"import sys; from probes.proof.verify import verify; assert verify({str(run)!r}).ok; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_command_ends_with_0_or_1_and_prints_json(run: Path) -> None:
    runner = CliRunner()
    good = runner.invoke(command, [str(run)])
    assert good.exit_code == 0
    assert "verifies: 50 captures in 2 files" in good.output
    edit(run, EDITS["an extra dataset"][0])
    bad = runner.invoke(command, [str(run), "--json"])
    assert bad.exit_code == 1
    assert json.loads(bad.output)["findings"][0]["code"] == "extra-object"
    assert "does not verify: 1 finding" in runner.invoke(command, [str(run)]).output


def test_an_in_toto_statement_names_every_file_and_is_not_made_of_damage(run: Path) -> None:
    made = json.loads(CliRunner().invoke(command, [str(run), "--in-toto"]).output)
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert {subject["name"] for subject in made["subject"]} == {FILE, "epoch-0001.h5", "run.json", "spec.yaml", "ledger.jsonl"}
    assert made["predicate"]["ledger_head"] == verify(run).head
    (run / FILE).write_bytes(b"")
    damaged: Verdict = verify(run, sha256=True)
    with pytest.raises(UsageError):
        statement(damaged)


def test_every_code_is_described_and_notes_are_marked() -> None:
    assert all(CODES.values())
    of_runs = {"gaps", "superseded", "incomplete", "ledger-grown", "ledger-torn"}
    assert {*of_runs, "anchor-partial", "anchor-resumed", "manifest-uncovered", "proof-v1", "unconfined", "uncovered"} == NOTES


def test_a_copy_of_the_ledger_under_another_name_is_not_a_ledger(run: Path) -> None:
    captures = len(probes.open(run).sel(phase="train")["acts", "fc1"])
    names = ("ledger copy.jsonl", "ledger.bak.jsonl", "ledger.rank-1.jsonl")
    for name in names:
        shutil.copy(run / "ledger.jsonl", run / name)
    assert [(one.code, one.file) for one in verify(run).findings] == [("uncovered", name) for name in names]
    assert len(probes.open(run).sel(phase="train")["acts", "fc1"]) == captures


def test_labels_that_are_too_many_for_an_attribute_verify(tmp_path: Path) -> None:
    series = Recording(tmp_path / "a")
    labels = [f"{index / 7:.17g}" for index in range(10_000)]
    series.take(np.zeros(10_000, "<f4"), dims=("bin",), coords={"bin": labels}).sealed()
    assert not [finding for finding in verify(next((tmp_path / "a").glob("epoch-*.h5"))).findings if finding.code == "extra-object"]


def test_a_verdict_states_whether_the_run_is_anchored(run: Path) -> None:
    head = verify(run).head
    assert verdict_text(verify(run)).endswith(", not anchored")
    assert verdict_text(verify(run, anchor=head)).endswith(", as anchored")


def test_only_the_head_is_as_anchored_in_a_run_that_does_not_verify(run: Path) -> None:
    head = verify(run).head
    with (run / "epoch-0000.h5").open("ab") as file:
        file.write(b"x")
    verdict = verify(run, anchor=head)
    assert not verdict.ok
    assert verdict_text(verdict).endswith(f"does not verify: 1 finding, ledger head {head}, only the ledger head is as anchored")


def test_a_manifest_without_a_copy_in_a_file_is_noted(tmp_path: Path) -> None:
    """Its start was killed before it sealed a file; who edits it meets no digest."""
    run = tmp_path / "run"
    write_run(run, epochs=1, source=small)
    (run / "epoch-0000.h5").unlink()
    (run / "ledger.jsonl").unlink()
    write_run(run, epochs=1, source=small, attempt=2)
    verdict = verify(run)
    assert verdict.ok
    assert [(one.code, one.file) for one in verdict.findings] == [("manifest-uncovered", "run.json")]
    assert verdict.weights == "", "anyone could have written the table of tensors in it"


def test_a_statement_reads_regular_files_of_the_run_only(run: Path) -> None:
    (run / "run.bak.json").symlink_to("/dev/zero")
    subjects = [one["name"] for one in statement(verify(run, sha256=True))["subject"]]
    assert "run.json" in subjects
    assert "run.bak.json" not in subjects
    (run / "sources.old.zip").symlink_to("/dev/zero")
    assert subjects == [one["name"] for one in statement(verify(run, sha256=True))["subject"]]
    verdict = verify(run, sha256=True)
    (run / "sources.zip").symlink_to("/dev/zero")  # after the verification
    with pytest.raises(FileRefused, match="is a link"):
        statement(verdict)


def test_a_manifest_that_was_changed_in_one_of_many_files_is_found_there(tmp_path: Path) -> None:
    """The copies of a manifest are checked once, by their bytes."""
    write_run(tmp_path, epochs=4, source=small)
    file = tmp_path / "epoch-0002.h5"
    changed = file.read_bytes().replace(b'"run_id":"r"', b'"run_id":"s"')
    assert changed != file.read_bytes()
    file.write_bytes(changed)
    stated(tmp_path, at=2, file_blake3=blake3_hex(changed))
    files = {one.file for one in verify(tmp_path).findings if not one.note}
    assert "epoch-0002.h5" in files
    assert files <= {"epoch-0002.h5", "run.json"}


def test_every_file_that_no_digest_covers_is_named(tmp_path: Path) -> None:
    """Whatever its name is: only ledgers, and what they and the files they list have a digest of, are part of the proof."""
    run = tmp_path / "run"
    write_run(run, epochs=1, source=small)
    verdict = verify(run)
    assert verdict.findings == ()
    shutil.copy(run / "run.json", run / "run.a2.json")
    names = "claim.json code.diff end.rank-0001.json epoch-0007.journal.kept epoch-0001.h5.1-0123abcd.tmp launch.a3.json~ log.jsonl"
    for name in (*names.split(), ".hidden", "RUN.JSON", "sources.zip", "spare.journal", "spec.yaml.bak", "sources.epoch-0000.zip"):
        (run / name).write_text("x")
    (run / "link").symlink_to(tmp_path)
    (run / "folder").mkdir()
    found = verify(run)
    assert found.ok
    there = {path.name for path in run.iterdir()} - {"folder", "run.json", "spec.yaml", "ledger.jsonl", "epoch-0000.h5"}
    assert {one.file for one in found.findings} == there
    assert [one.file for one in found.findings if one.code == "manifest-uncovered"] == ["run.a2.json"]
    listed = {one["name"] for one in statement(verify(run, sha256=True))["subject"]}
    assert listed == {"run.json", "run.a2.json", "spec.yaml", "ledger.jsonl", "epoch-0000.h5"}
