"""What started the processes of a launch, as far as the environment of each of them says."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from probes.digest import blake3_hex, canonical

LAUNCHERS = {  # name: its id, the same on every rank, and how often it has started the processes again
    "torchrun": (("TORCHELASTIC_RUN_ID",), "TORCHELASTIC_RESTART_COUNT"),
    "slurm": (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_RESTART_COUNT"),
}

HERE = ("", "localhost", "127.0.0.1", "::1")  # where ranks meet that are on one machine


class Launcher(NamedTuple):
    """What started the processes.

    Attributes:
        name: `torchrun`, `slurm`, or empty for another one.
        id: how it calls the job, the same on every rank and after a restart; empty where it has no name for it.
        restart: how often it has started the processes again.
        agent: the process that started this one, on this machine.
        token: the same on every rank of one start of the processes, and another for each start, as far as that can be known.
    """

    name: str
    id: str
    restart: int
    agent: str
    token: str

    @property
    def job(self) -> str:
        """What the ranks of all starts of one job have in common; of a launcher without an id, those of one start."""
        return self.id or self.token


def launcher(world: int) -> Launcher:
    """What started this process.

    Args:
        world: number of processes of the launch.
    """
    parent = _parent()
    agent = blake3_hex(canonical([socket.gethostname(), *parent]))[:32]
    meeting = [os.environ.get(variable, "") for variable in ("MASTER_ADDR", "MASTER_PORT")]
    for name, (ids, count) in LAUNCHERS.items():
        if ids[0] in os.environ and (name == "torchrun" or world > 1):
            near = [] if name == "slurm" or _has_several_nodes(world) else parent
            given = [os.environ[one] for one in ids if os.environ.get(one, "none") != "none"]
            found = ".".join(given) or blake3_hex(canonical([*meeting, *near]))[:32]
            restart = int(os.environ.get(count, "0") or 0)
            return Launcher(name, found, restart, agent, _token(name, found, str(restart), str(world), *meeting, *near))
    return Launcher("", "", 0, agent, _token(str(world), *meeting, *([] if _has_several_nodes(world) else parent)))


def _token(*words: str) -> str:
    return blake3_hex(canonical(words))[:32]


def _has_several_nodes(world: int) -> bool:
    """Whether ranks of the launch may be on other machines, whose processes have other parents; all ranks have to say the same."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local) < world
    return os.environ.get("MASTER_ADDR", "") not in HERE


def _parent() -> list[str]:
    """The process that started this one; a number alone may come again."""
    try:
        began = Path(f"/proc/{os.getppid()}").stat().st_ctime_ns
    except OSError:
        began = 0
    return [str(os.getppid()), str(began)]
