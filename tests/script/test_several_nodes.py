"""A launch on two nodes: two network, process and host name spaces of Linux, with a cable between them and one directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import probes
from tests.script.test_restarted_launch import FRESH_STORE, SCRIPT, SPEC

pytest.importorskip("torch.distributed.run", reason="this PyTorch is built without distributed")
pytestmark = pytest.mark.torture

NODE = """
set -e
hostname node{number}
ip link set lo up
until ip link show cable{number} > /dev/null 2>&1; do sleep 0.1; done
ip addr add 10.77.0.{number}/24 dev cable{number}
ip link set cable{number} up
exec {python} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --max-restarts 2 --rdzv-backend c10d --rdzv-id job \
  --rdzv-endpoint 10.77.0.1:29511 --rdzv-conf is_host={is_host} --local-addr 10.77.0.{number} \\
  -m probes run --out run {resume} probe.yaml train.py
"""


def separated(*words: str) -> list[str]:
    return ["unshare", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", *words]


def cabled(folder: Path) -> bool:
    """Whether this machine lets us make name spaces with a cable between them."""
    if not all(map(shutil.which, ("unshare", "ip", "hostname"))):
        return False
    words = separated("sh", "-c", "ip link add cable1 type veth peer name cable2")
    return subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0


def child_of(pid: int) -> int:
    """The only child of a process."""
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if found:
            return int(found[0])


def started(folder: Path, resume: str = "", **more: str) -> list[subprocess.Popen[str]]:
    """Start both nodes, with a cable between them."""
    nodes = []
    for number in (1, 2):
        about = {**os.environ, **FRESH_STORE, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"cable{number}", "NO_COLOR": "1", **more}
        text = NODE.format(number=number, python=sys.executable, is_host=int(number == 1), resume=resume)
        words = separated("sh", "-c", text)
        nodes.append(subprocess.Popen(words, cwd=folder, env=about, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    one, other = (child_of(node.pid) for node in nodes)
    link = ["ip", "link", "add", "cable1", "netns", str(one), "type", "veth", "peer", "name", "cable2", "netns", str(other)]
    subprocess.run(link, check=True, capture_output=True)
    return nodes


def launched(folder: Path, resume: str = "", **more: str) -> list[str]:
    """What each node said, once both have ended well."""
    nodes = started(folder, resume, **more)
    said = [node.communicate(timeout=280)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    return said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory that both nodes share."""
    if not cabled(tmp_path):
        pytest.skip("name spaces of Linux with a cable between them need the rights of root")
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "probe.yaml").write_text(SPEC)
    return folder


def check(folder: Path, said: list[str]) -> None:
    """The run has every epoch of both ranks, once, and one head that was printed once."""
    run = probes.open(folder / "run")
    assert run.state == dict.fromkeys(range(3), "complete"), said
    for rank in (0, 1):
        clocks = run["acts", "a", "output"].sel(rank=rank).clocks
        assert list(zip(clocks["epoch"].tolist(), clocks["step"].tolist(), strict=True)) == [(e, s) for e in range(3) for s in range(4)]
    assert "".join(said).count("head of the run ") == 1
    assert probes.verify(folder / "run", anchor="".join(said).partition("head of the run ")[2][:64]).anchored


def test_ranks_on_two_nodes_with_one_directory_are_one_run(folder: Path) -> None:
    said = launched(folder)
    check(folder, said)
    run = probes.open(folder / "run")
    assert [one["world"] for one in run.launches] == [2]
    manifests = [json.loads(path.read_text()) for path in sorted((folder / "run").glob("run*.json"))]
    assert len(manifests) == len(run.launches) * 2


def test_a_launch_continues_after_a_rank_on_one_of_the_nodes_was_killed(folder: Path) -> None:
    said = launched(folder, KILL="1.2.1")
    check(folder, said)
    assert {one["next_epoch"] for one in probes.open(folder / "run").launches[1:]} == {1}, "an agent may start its rank once more"


def test_the_run_of_a_failed_node_is_reported_recovered_and_resumed(folder: Path) -> None:
    nodes = started(folder, WAIT="1.2")  # both ranks stop there
    try:
        until(lambda: all((folder / f"waits.{rank}").exists() for rank in (0, 1)) and probes.open(folder / "run").state[0] == "complete")
        os.kill(child_of(nodes[1].pid), signal.SIGKILL)  # the first process of its name space: all of the node is gone
        assert probes.open(folder / "run").state == {0: "complete", 1: "unsealed"}
        assert command(folder, "ls", "run").stdout.splitlines()[1] == "2 ranks"
        assert "rank 0" in command(folder, "recover", "run").stderr, "its node still lives"
        assert probes.open(folder / "run").state == {0: "complete", 1: "unsealed"}
    finally:
        for node in nodes:
            node.kill()
            node.communicate(timeout=60)
    recovered = command(folder, "recover", "run")
    assert recovered.returncode == 0, recovered.stderr
    assert probes.open(folder / "run").state == {0: "complete", 1: "incomplete"}
    assert probes.verify(folder / "run").ok
    check(folder, launched(folder, "--resume"))
    assert [one["next_epoch"] for one in probes.open(folder / "run").launches] == [0, 1]


def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a verb says on a third host."""
    return subprocess.run([sys.executable, "-m", "probes", *words], cwd=folder, text=True, capture_output=True, check=False)
