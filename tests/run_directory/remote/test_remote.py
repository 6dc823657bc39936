"""Runs in remote stores: fsspec's memory, local files, one that fails, and S3 where moto and s3fs are installed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import probes
from probes.commands.ls import ls
from probes.commands.upload import upload
from probes.commands.verify import verify
from probes.errors import MissingExtra, StorageError, UsageError
from probes.run_directory.remote.store import RemoteFolder
from probes.run_directory.remote.upload import TRIES, Upload
from probes.run_directory.search import remote_url
from tests.reader.recorded import Recording, counted

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed; the extra `remote` brings it")


@pytest.fixture
def memory() -> Iterator[Any]:
    """Fsspec's store in memory, empty."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("s3://bucket/runs/a/", "s3://bucket/runs/a"),
        (Path("s3://bucket/runs/a"), "s3://bucket/runs/a"),
        (Path("file:///mnt/a"), "file:///mnt/a"),
        ("file:///mnt/a", "file:///mnt/a"),
        ("memory://a", "memory://a"),
        ("runs/a", None),
        ("/mnt/s3:/a", None),
        ("c:/runs", None),
    ],
)
def test_a_url_is_known_also_when_a_path_was_made_of_it(place: str | Path, url: str | None) -> None:
    assert remote_url(place) == url


def test_a_copy_reads_lists_and_verifies_as_the_run_does(tmp_path: Path, memory: Any) -> None:
    here = probes.open(counted(tmp_path / "run", 3))
    names = Upload(tmp_path / "run", RemoteFolder("memory://runs/a")).sync()
    assert names == ["epoch-0000.h5", "epoch-0001.h5", "epoch-0002.h5", "ledger.jsonl"]
    there = probes.open("memory://runs/a")
    assert there.captures_roots == here.captures_roots
    assert there["acts", "fc1"].numpy().tolist() == here["acts", "fc1"].numpy().tolist()
    assert "memory://runs/a" in repr(there)
    verdict = probes.verify("memory://runs/a")
    assert (verdict.path, verdict.ok) == ("memory://runs/a", probes.verify(tmp_path / "run").ok)
    said = CliRunner().invoke(ls, ["memory://runs/a"], catch_exceptions=False).stdout
    assert said.replace("memory://runs/a", "RUN") == CliRunner().invoke(ls, [str(tmp_path / "run")]).stdout.replace(
        str(tmp_path / "run"), "RUN"
    )
    assert "memory://runs/a" in CliRunner().invoke(verify, ["memory://runs/a"], catch_exceptions=False).stdout
    assert pickle.loads(pickle.dumps(there))["acts", "fc1"].numpy().tolist() == here["acts", "fc1"].numpy().tolist()


def test_capture_files_are_downloaded_when_they_are_read(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Upload(counted(tmp_path / "run", 3), RemoteFolder("memory://a")).sync()
    got: list[str] = []
    really = RemoteFolder.get
    monkeypatch.setattr(RemoteFolder, "get", lambda self, name, path: (got.append(name), really(self, name, path))[1])
    run = probes.open("memory://a")
    run.sel(epoch=1)["acts", "fc1"].numpy()
    assert got == ["ledger.jsonl", "epoch-0001.h5"]
    folder = run.path
    del run
    assert not folder.exists()


def test_a_changed_copy_does_not_verify(tmp_path: Path, memory: Any) -> None:
    Upload(counted(tmp_path / "run", 2), RemoteFolder("memory://a")).sync()
    data = bytearray(memory.cat_file("/a/epoch-0001.h5"))
    data[-9] ^= 1
    memory.pipe_file("/a/epoch-0001.h5", bytes(data))
    assert not probes.verify("memory://a").ok


def test_a_line_that_is_added_while_the_ledger_is_uploaded_waits_for_its_file(tmp_path: Path, memory: Any) -> None:
    counted(tmp_path / "run", 2)
    ledger = tmp_path / "run" / "ledger.jsonl"
    whole = ledger.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    ledger.write_bytes(first)
    store = RemoteFolder("memory://a")
    put = store.put

    def sealed_meanwhile(path: Path, name: str) -> None:
        ledger.write_bytes(whole)
        put(path, name)

    store.put = sealed_meanwhile  # type: ignore[method-assign]  # a sealer that finishes another epoch at this moment
    task = Upload(tmp_path / "run", store)
    task.sync()
    there = tmp_path / "there"
    there.mkdir()
    store.get("ledger.jsonl", there / "ledger.jsonl")
    assert (there / "ledger.jsonl").read_bytes() == first
    assert task.sync() == ["epoch-0001.h5", "ledger.jsonl"]


def test_an_upload_continues_after_an_earlier_one(tmp_path: Path, memory: Any) -> None:
    counted(tmp_path / "run", 2)
    Upload(tmp_path / "run", RemoteFolder("memory://a")).sync()
    memory.pipe_file("/a/epoch-0000.h5", memory.cat_file("/a/epoch-0000.h5")[:100])  # as a store without atomic writes leaves it
    task = Upload(tmp_path / "run", RemoteFolder("memory://a"))
    assert task.sync() == ["epoch-0000.h5"]
    assert task.sync() == []
    Recording(tmp_path / "run", 2).take(np.zeros(1)).sealed()
    Recording(tmp_path / "run", 3).take(np.zeros(1)).left()  # a journal is not uploaded
    assert task.sync() == ["epoch-0002.h5", "ledger.jsonl"]
    assert sorted(RemoteFolder("memory://a").sizes()) == ["epoch-0000.h5", "epoch-0001.h5", "epoch-0002.h5", "ledger.jsonl"]


@pytest.mark.parametrize("failures", [1, TRIES - 1, TRIES])
def test_a_store_that_fails_is_tried_again(tmp_path: Path, memory: Any, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(tmp_path / "run", 2)
    left = [failures]
    really = type(memory).put_file

    def failing(self: Any, *arguments: Any, **options: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise ConnectionResetError("the store hung up\nand said more")
        really(self, *arguments, **options)

    monkeypatch.setattr(type(memory), "put_file", failing)
    waited: list[float] = []
    task = Upload(tmp_path / "run", RemoteFolder("memory://a"), waited.append)
    if failures == TRIES:
        with pytest.raises(StorageError, match=r'"memory://a" cannot be written: ConnectionResetError: the store hung up$'):
            task.sync()
        assert "ledger.jsonl" not in RemoteFolder("memory://a").sizes()
    assert "ledger.jsonl" in task.sync() or failures < TRIES
    assert waited == [1.0, 2.0, 4.0, 8.0][: min(failures, TRIES - 1)]
    assert probes.open("memory://a").epochs == [0, 1]


def test_a_store_that_keeps_half_of_a_file_is_noticed(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(memory), "put_file", lambda self, local, remote, **_: self.pipe_file(remote, Path(local).read_bytes()[:50]))
    with pytest.raises(StorageError, match="has 50 bytes of"):
        Upload(counted(tmp_path / "run", 1), RemoteFolder("memory://a"), lambda _: None).sync()


def test_the_command_copies_into_a_folder_and_follows_a_run_to_its_end(tmp_path: Path) -> None:
    counted(tmp_path / "run", 2)
    url = f"file://{tmp_path}/copy"
    done = CliRunner().invoke(upload, [str(tmp_path / "run"), url, "--follow"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1] == f"ledger.jsonl -> {url}"
    assert (tmp_path / "copy" / "epoch-0001.h5").read_bytes() == (tmp_path / "run" / "epoch-0001.h5").read_bytes()
    assert probes.open(url).epochs == [0, 1]


def test_a_url_without_a_store_or_a_run_is_refused_in_a_sentence(tmp_path: Path, memory: Any) -> None:
    with pytest.raises(StorageError, match='"memory://nothing" holds no run'):
        probes.open("memory://nothing")
    with pytest.raises(StorageError, match=r'"nonsense://a": .*nonsense'):
        probes.open("nonsense://a")
    for words, kind, text in (
        ([str(tmp_path), "runs/a"], UsageError, "is not a URL"),
        ([str(tmp_path), "memory://a"], StorageError, "is not a run directory"),
    ):
        done = CliRunner().invoke(upload, words)
        assert isinstance(done.exception, kind)
        assert text in str(done.exception)


def test_a_store_with_a_missing_package_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3", name="s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingExtra, match="the store `s3` needs the package `s3fs`; install it with: pip install s3fs"):
        probes.open("s3://bucket/a")


def test_s3_has_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = pytest.importorskip("moto.server", reason="moto is not installed").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {"ENDPOINT_URL_S3": f"http://{host}:{port}", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", f"http://{host}:{port}")
        import boto3

        boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1").create_bucket(Bucket="bucket")
        fsspec.config.conf.setdefault("s3", {})["endpoint_url"] = f"http://{host}:{port}"
        Upload(counted(tmp_path / "run", 2), RemoteFolder("s3://bucket/runs/a")).sync()
        assert (
            probes.open("s3://bucket/runs/a")["acts", "fc1"].numpy().tolist()
            == probes.open(tmp_path / "run")["acts", "fc1"].numpy().tolist()
        )
        assert probes.verify("s3://bucket/runs/a").ok == probes.verify(tmp_path / "run").ok
        assert Upload(tmp_path / "run", RemoteFolder("s3://bucket/runs/a")).sync() == []
    finally:
        fsspec.config.conf.pop("s3", None)
        server.stop()
