from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from torch import nn
from torch.nn.utils import parametrizations

from probes.provenance.code import repository as recorded_repository
from probes.provenance.code import with_home, without_home
from probes.provenance.collect import CollectedProvenance, Script, collect, this_script
from probes.provenance.environment import generators
from probes.provenance.weights_record import tensor_hex, weights_now
from probes.run_directory.manifest import Manifest, identity
from probes.signature import DTYPES
from probes.tensors import DTYPE_NAMES
from tests.proof.origin import SPEC, loaded, tree


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def found(model: nn.Module | None = None, script: Script | None = None, weights: str = "start") -> CollectedProvenance:
    return collect({"": tree(model or net())}, loaded(weights), run_id="r", script=script or Script(None, None, ()))


def git(directory: Path, *arguments: str) -> None:
    names = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", "-C", str(directory), *names, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "train.py").write_text("a = 1\n")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_the_manifest_comes_back_from_its_text_unchanged() -> None:
    manifest = found().manifest
    assert Manifest.model_validate_json(manifest.text()) == manifest
    assert identity(manifest) == manifest.identity


def test_the_spec_is_hashed_and_its_probes_keep_their_order() -> None:
    spec = found().manifest.spec
    assert spec.sha256 == hashlib.sha256(SPEC).hexdigest()
    assert spec.probes == ("acts", "big", "grads", "rag", "mix")
    assert spec.edits == ("mix",)


def test_collecting_draws_no_random_number_and_leaves_the_model_alone() -> None:
    model = net()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    names, bits = sorted(vars(model[0])), {name: value.clone() for name, value in model.state_dict().items()}
    found(model)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), np.random.get_state()[1].tolist())
    assert sorted(vars(model[0])) == names
    assert all(torch.equal(bits[name], value) for name, value in model.state_dict().items())


def test_a_parametrized_weight_is_never_computed() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(4, 4))
    vectors = layer.parametrizations.weight[0]._u.clone()
    names = [one.name for one in found(layer).manifest.models[0].tensors]
    assert "parametrizations.weight.original" in names
    assert "weight" not in names
    assert torch.equal(vectors, layer.parametrizations.weight[0]._u)


def test_one_changed_bit_of_a_weight_changes_the_weights_and_not_the_structure() -> None:
    model = net()
    before = found(model).manifest.identity
    with torch.no_grad():
        model[2].bias.view(torch.int32)[1] ^= 1
    after = found(model).manifest.identity
    assert before.weights != after.weights == weights_now({"": tree(model)})["weights"]
    assert before.structure == after.structure


def test_another_module_or_frozen_parameter_changes_the_structure() -> None:
    frozen = net()
    frozen[0].weight.requires_grad_(False)
    digests = {found(model).manifest.identity.structure for model in (net(), net(1), frozen, nn.Sequential(*net(), nn.ReLU()))}
    assert len(digests) == 3


def test_a_shared_tensor_is_named_at_both_places_and_digested_once() -> None:
    model = net()
    model[2] = nn.Linear(3, 4)
    model[2].weight = model[0].weight
    table = {one.name: one for one in found(model).manifest.models[0].tensors}
    assert table["2.weight"].same_as == "0.weight"
    assert table["2.weight"].digest is None
    assert table["0.weight"].digest is not None


@pytest.mark.parametrize("name", sorted(set(DTYPES) & set(DTYPE_NAMES.values()) - {"quint8", "qint8", "qint32"}))
def test_the_digest_of_a_tensor_of_any_dtype_is_that_of_its_bytes(name: str) -> None:
    size = DTYPES[name].itemsize
    payload = bytes(range(1, 1 + 6 * size)) if name != "bool" else bytes([0, 1, 1, 0, 1, 0])
    tensor = torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(getattr(torch, name))
    assert tensor_hex(tensor) == blake3(payload).hexdigest()


def test_the_digest_does_not_depend_on_strides() -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    assert tensor_hex(image.to(memory_format=torch.channels_last)) == tensor_hex(image)
    assert tensor_hex(torch.arange(4.0)[::2]) == tensor_hex(torch.tensor([0.0, 2.0]))
    assert tensor_hex(torch.empty(0)) == blake3(b"").hexdigest()


def test_weights_without_bytes_have_a_reason_instead_of_a_digest() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3), nn.Linear(2, 2, device="meta"))
    manifest = found(model).manifest
    assert manifest.identity.weights is None
    assert {"weights.1.weight", "weights.2.weight"} <= set(manifest.unknown)
    now = weights_now({"": tree(model)})
    assert "weights" not in now
    assert ["digest" in row for row in now["models"][0]["tensors"]] == [True, True, False, False, False, False]


def test_weights_are_not_read_if_the_spec_says_never() -> None:
    manifest = found(weights="never").manifest
    assert manifest.identity.weights is None
    assert {one.digest for one in manifest.models[0].tensors} == {None}


def test_a_clean_repository_gives_commit_and_branch(repository: Path) -> None:
    file = repository / "train.py"
    origin = found(script=Script("train.py", file, ()))
    state = origin.manifest.code.git
    assert state is not None
    assert (len(state.commit), state.branch, state.dirty, state.diff, origin.files) == (40, "trunk", False, None, {})


def test_an_uncommitted_change_is_saved_next_to_the_run_and_changes_the_identity(repository: Path) -> None:
    file = repository / "train.py"
    clean = found(script=Script("train.py", file, ())).manifest
    file.write_text("a = 2\n")
    (repository / "new.py").write_text("")
    origin = found(script=Script("train.py", file, ()))
    state = origin.manifest.code.git
    assert state is not None
    assert state.dirty
    assert state.untracked == ("new.py",)
    assert b"+a = 2" in origin.files["code.diff"]
    assert clean.identity.code != origin.manifest.identity.code


@pytest.fixture
def changed(repository: Path) -> Path:
    """The folder of a script in a repository with changes there and above."""
    (repository / "scripts").mkdir()
    (repository / "scripts" / "run.py").write_text("b = 1\n" * 20)
    git(repository, "add", "-A")
    git(repository, "commit", "-m", "second")
    (repository / "scripts" / "run.py").write_text("b = 1\n" * 8 + "b = 2\n" + "b = 1\n" * 11)
    (repository / "train.py").write_text("a = 2\n")
    return repository / "scripts"


@pytest.mark.parametrize(
    "setting",
    [
        *("diff.relative=true", "diff.noprefix=true", "diff.mnemonicPrefix=true", "diff.context=1", "diff.orderFile=order"),
        *("core.abbrev=20", "diff.interHunkContext=9"),
    ],
)
def test_uncommitted_changes_do_not_depend_on_the_settings_of_the_user(changed: Path, setting: str) -> None:
    (changed.parent / "order").write_text("train.py\n")
    (changed / "order").write_text("train.py\n")
    before = recorded_repository(changed)
    assert before[1].count(b"diff --git a/") == 2
    git(changed, "config", *setting.split("="))
    assert recorded_repository(changed) == before


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_DIFF_OPTS", "GIT_LITERAL_PATHSPECS"])
def test_the_repository_is_that_of_the_script_in_a_hook_of_git_too(changed: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (changed / "new.py").write_text("")
    before = recorded_repository(changed)
    monkeypatch.setenv(name, {"GIT_DIFF_OPTS": "-u1", "GIT_LITERAL_PATHSPECS": "1"}.get(name, ".git"))
    assert recorded_repository(changed) == before


def test_facts_that_git_cannot_give_are_reported(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    manifest = found(script=Script("train.py", script, ())).manifest
    assert manifest.code.git is None
    assert "repository" in manifest.unknown["code.git"]
    assert found().manifest.unknown["code.sha256"] == "the code is not in a file"


def test_a_repository_that_configures_a_program_does_not_run_it(repository: Path) -> None:
    canary = repository / "canary"
    (repository / ".gitattributes").write_text("*.py diff=evil\n")
    (repository / "same.py").write_text("b = 1\n")
    git(repository, "add", "same.py")
    git(repository, "commit", "-m", "second")
    hook = repository / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        git(repository, "config", key, f"touch {canary}; false")
    os.utime(repository / "same.py", (1, 1))  # the index does not know that it is the same
    (repository / "train.py").write_text("a = 3\n")
    found(script=Script("train.py", repository / "train.py", ()))
    assert not canary.exists()


def test_home_secrets_and_the_environment_are_not_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PROBES_CANARY", "canary-value")
    monkeypatch.chdir(home)
    argv = (f"--data={home}/digits", str(home), "--api-key", "canary-key", "--password=canary-word", "ghp_" + "c4n4ry" * 6)
    text = found(script=Script(f"{home}/train.py", None, argv)).manifest.text()
    assert "canary" not in text
    assert "c4n4ry" not in text
    assert str(home) not in text
    assert '"~/train.py"' in text
    assert '"--data=~/digits"' in text
    assert os.environ["PROBES_CANARY"] not in text


def test_secrets_in_overrides_tags_and_uncommitted_changes_are_masked(repository: Path) -> None:
    file = repository / "train.py"
    file.write_text('API_KEY = "canary-key"\nfetch("https://ada:canary-word@example.org/digits")\na = 2\n')
    origin = collect(
        {"": tree(net())},
        loaded(),
        run_id="r",
        script=Script("train.py", file, ("logger.api_key=canary-a",)),
        overrides=("vars.password=canary-b", "vars.block=fc1"),
        tags={"wandb_token": "canary-c", "note": "ghp_canary" + "c4n4ry" * 6},
    )
    diff = origin.files["code.diff"]
    assert b"canary" not in diff + origin.manifest.text().encode()
    assert b'+API_KEY = "***"\n' in diff
    assert b"+a = 2\n" in diff
    assert origin.manifest.spec.overrides == ("vars.password=***", "vars.block=fc1")
    state = origin.manifest.code.git
    assert state is not None
    assert state.diff is not None
    assert state.diff.sha256 == hashlib.sha256(diff).hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        *("{home}/a", "{home}", "--x={home}/a", "/mnt{home}/a", "{home}other/a", "a"),
        *("--paths={home}/a:{home}/b", "+files=[{home}/a,{home}/b]", "dir: {home}/a", "@{home}/arguments", '"{home}/a"'),
    ],
)
def test_the_home_directory_is_written_as_a_tilde_and_comes_back(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    argument = text.format(home="/home/ada")
    assert with_home(without_home(argument)) == argument


@pytest.mark.parametrize("text", ["d\udcfcr/tr\udce4in.py", "/home/ada/\udcff", "ä/ö", "\\d+"])
def test_names_that_cannot_be_decoded_are_recorded_as_escapes_and_come_back(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    recorded = without_home(text)
    recorded.encode("utf-8")
    assert with_home(recorded) == text


def test_paths_of_a_user_without_a_home_directory_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(none))
    assert without_home("/data/a") == "/data/a"
    assert with_home("~/a") == "~/a"


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_another_generator_of_numpy_is_recorded_with_its_state(kind: type[np.random.BitGenerator]) -> None:
    """The program's call of `set_bit_generator` replaces the Mersenne Twister; its state has another form."""
    digests = []
    was = np.random.get_bit_generator()
    try:
        for seed in (1, 1, 2):
            np.random.set_bit_generator(kind(seed))
            digests.append(found().manifest.random.digests["numpy"])
    finally:
        np.random.set_bit_generator(was)
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_of_numpys_generator_is_that_of_earlier_releases() -> None:
    name, keys, *rest = np.random.get_state()
    expected = blake3(json.dumps([name, *rest], separators=(",", ":")).encode() + keys.tobytes()).hexdigest()
    assert generators().digests["numpy"] == expected


def test_variables_and_words_of_the_program_that_are_not_text_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "\udcff")
    monkeypatch.setattr(sys, "argv", ["train.py", "--steps", 3])
    assert this_script().argv == ("--steps", "3")
    assert b"\\\\udcff" in found(script=this_script()).manifest.text().encode()


def test_tags_that_are_not_text_are_recorded_as_text() -> None:
    tags: dict[str, Any] = {"seed": 3, "name": "\udcff"}
    made = collect({"": tree(net())}, loaded(), run_id="r", script=Script(None, None, ()), tags=tags)
    assert made.manifest.tags == {"seed": "3", "name": "\\udcff"}


def test_a_mixed_up_tf32_setting_is_reported_as_unknown() -> None:
    """Torch refuses to tell the old switches once the new ones were used; see its notes on TF32."""
    script = (
        "import torch; torch.backends.cuda.matmul.fp32_precision = 'tf32'\n"
        "from probes.provenance.environment import environment\n"
        "unknown = {}; print(environment([], 1, unknown).tf32['matmul'], sorted(unknown))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("None ['environment", "True []"))
