"""A launch on two nodes: two network, process and host name spaces of Linux, with a cable between them and one directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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
  --rdzv-endpoint 10.77.0.1:29511 --rdzv-conf is_host={is_host} --local-addr 10.77.0.{number} -m probes run --out run probe.yaml train.py
"""


def separated(*words: str) -> list[str]:
    return ["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", *words]


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


def launched(folder: Path) -> list[str]:
    """Start both nodes; what each said."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "probe.yaml").write_text(SPEC)
    nodes = []
    for number in (1, 2):
        about = {**os.environ, **FRESH_STORE, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"cable{number}", "NO_COLOR": "1"}
        text = NODE.format(number=number, python=sys.executable, is_host=int(number == 1))
        words = separated("sh", "-c", text)
        node = subprocess.Popen(words, cwd=folder, env=about, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        nodes.append(node)
    one, other = (child_of(node.pid) for node in nodes)
    link = ["ip", "link", "add", "cable1", "netns", str(one), "type", "veth", "peer", "name", "cable2", "netns", str(other)]
    subprocess.run(link, check=True, capture_output=True)
    said = [node.communicate(timeout=280)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    return said


def test_ranks_on_two_nodes_with_one_directory_are_one_run(tmp_path: Path) -> None:
    if not cabled(tmp_path):
        pytest.skip("name spaces of Linux with a cable between them need the rights of root")
    said = launched(tmp_path / "two")
    out = tmp_path / "two" / "run"
    run = probes.open(out)
    assert run.state == dict.fromkeys(range(3), "complete"), said
    assert [one["world"] for one in run.launches] == [2]
    manifests = [json.loads(path.read_text()) for path in sorted(out.glob("run*.json"))]
    assert len(manifests) == len(run.launches) * 2
    for rank in (0, 1):
        assert len(run["acts", "a", "output"].sel(rank=rank)) == 3 * 4
    heads = "".join(said).count("head of the run ")
    assert heads == 1
    assert probes.verify(out, anchor="".join(said).partition("head of the run ")[2][:64]).anchored
