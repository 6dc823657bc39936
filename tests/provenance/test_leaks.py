from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path
from time import perf_counter

import pytest
from torch import nn

from probes.provenance.collect import Script, collect
from probes.provenance.redact import redacted, redacted_source, redacted_table
from tests.proof.origin import loaded, tree
from tests.proof.runs import small, write_run
from tests.provenance.leaks import FURTHER, Leak, in_arguments, in_sources, of_further_services

SOURCES, ARGUMENTS = in_sources(), in_arguments()


def words(leak: Leak) -> tuple[str, ...]:
    return tuple(word.replace("\0", " ") for word in leak.text.split(" "))


def test_there_are_a_hundred_leaks_and_no_two_are_of_the_same_secret() -> None:
    assert len(SOURCES) + len(ARGUMENTS) == 100
    assert len({leak.secret for leak in (*SOURCES, *ARGUMENTS)}) == 100
    assert all(leak.secret in leak.text for leak in (*SOURCES, *ARGUMENTS))


@pytest.mark.parametrize("mark", ["", "+", "-", " "], ids=["a source", "an added line", "a removed line", "a line beside"])
def test_no_secret_is_left_in_a_source_or_a_difference(mark: str) -> None:
    text = "\n".join(f"{mark}{line}" for leak in SOURCES for line in leak.text.split("\n")) + "\n"
    found = redacted_source(text.encode()).decode()
    assert [leak.text for leak in SOURCES if leak.secret in found] == []


def test_no_token_of_further_services_is_left() -> None:
    leaks = of_further_services()
    found = redacted_source("\n".join(leak.text for leak in leaks).encode()).decode()
    assert [leak.text for leak in leaks if leak.secret in found] == []
    assert [leak.secret for leak in leaks[: len(FURTHER)] if leak.secret in redacted([leak.secret])[0]] == []


def test_names_of_tokens_in_a_vocabulary_and_long_words_are_not_masked() -> None:
    source = b"""pad_token = "<|end_of_text_2|>"
tokenizer.eos_token = "[EOS]"
self.mask_token = "token"
live_training_dataset_2024_v2 = pk.primary_key_of_table_2 + sl.slice_of_layers_12
digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
path = "runs/2024-01-01/api-gateway/s.layers_of_the_first_block_3"
"""
    assert redacted_source(source) == source


def test_no_secret_is_left_in_arguments_and_tags() -> None:
    assert [leak.text for leak in ARGUMENTS if any(leak.secret in word for word in redacted(words(leak)))] == []
    named = {words(leak)[0].lstrip("-").partition("=")[0]: leak.text.partition(" ")[2] or leak.text.partition("=")[2] for leak in ARGUMENTS}
    secret = {name: value for name, value in named.items() if name not in ("u", "user", "proxy-user", "header")}
    assert not [leak.secret for leak in ARGUMENTS if leak.secret in str(redacted_table(secret))]


def test_masking_a_hundred_leaks_a_thousand_times_over_takes_a_moment() -> None:
    text = "\n".join(leak.text for leak in SOURCES).encode()
    started = perf_counter()
    redacted_source(text * 100)
    assert perf_counter() - started < 5


def test_no_secret_is_left_in_any_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in a repository, all leaks in its uncommitted changes, its arguments, tags and `--set`."""
    monkeypatch.setenv("PROBES_KEEP_SOURCES", "1")
    script = tmp_path / "code" / "train.py"
    script.parent.mkdir()
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(script.parent))
    script.write_text("import torch\n")
    for order in (("init", "-q"), ("add", "."), ("commit", "-qm", "a")):
        subprocess.run([*git, *order], check=True)
    script.write_text("\n".join(leak.text for leak in SOURCES) + "\n")
    argv = tuple(word for leak in ARGUMENTS for word in words(leak))
    sets = [f"vars.note={words(leak)[-1]}" for leak in ARGUMENTS if "note" in leak.text]
    tags = {f"tag{number}": words(leak)[-1] for number, leak in enumerate(ARGUMENTS) if "note" in leak.text}
    program = Script("train.py", script, argv)
    found = collect({"": tree(nn.Linear(2, 2))}, loaded(), run_id="r", script=program, overrides=sets, tags=tags)
    run = tmp_path / "run"
    write_run(run, epochs=1, source=small, origin=found.manifest)
    write_run(run, epochs=2, first=1, source=small, origin=found.manifest, seals=False)  # a journal
    for name, content in found.files.items():
        (run / name).write_bytes(content)
    assert {"code.diff", "sources.zip", "run.json", "spec.yaml", "epoch-0000.h5", "epoch-0001.journal"} <= {
        path.name for path in run.iterdir()
    }
    everything = b"".join(_contents(path) for path in run.iterdir()).decode("utf-8", "replace")
    assert "***" in everything
    assert [leak.text for leak in (*SOURCES, *ARGUMENTS) if leak.secret in everything] == []


def _contents(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".zip":
        return content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(map(archive.read, archive.namelist()))
