"""The launcher of the processes of a launch, as far as their environment names it."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from probes.digest import blake3_hex, canonical
from probes.errors import UsageError
from probes.host import boot_id, started

LAUNCHERS = {  # name: its id, the same on every rank, and the number of restarts
    "torchrun": (("TORCHELASTIC_RUN_ID",), "TORCHELASTIC_RESTART_COUNT"),
    "slurm": (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_RESTART_COUNT"),
    "mpirun": (("PMIX_NAMESPACE",), ""),  # Open MPI: another one for each start
}

TASKS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")  # how many processes srun or mpirun has started; they set no `WORLD_SIZE`
STARTED_BY = "PROBES_STARTED_BY"  # set for a rank that another rank has started, as Lightning's `ddp` does
BY_SCRIPT = "PROBES_RANKS_BY_SCRIPT"  # of ranks of a program that starts its ranks itself
HERE = ("", "localhost", "127.0.0.1", "::1")  # the meeting point of ranks on one machine

OF_A_RANK = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|TORCHELASTIC_\w+|" + f"{STARTED_BY}|{BY_SCRIPT}"
)


class Launcher(NamedTuple):
    """The launcher of a process.

    Attributes:
        name: `torchrun`, `slurm`, `mpirun`, `script` for a program that starts its ranks itself, or empty for another one.
        id: how it calls the job, the same on every rank and after a restart; empty if it has no name for it.
        restart: how often it has started the processes again.
        agent: the process that started this one, on this machine.
        began: when this process began, in ticks since the start of the machine; 0 if not known.
        token: the same on every rank of one start of the processes, and another for each start, as far as that can be known.
    """

    name: str
    id: str
    restart: int
    agent: str
    began: int
    token: str

    @property
    def job(self) -> str:
        """The identity of a job over all its starts; for a launcher without an id, over one start."""
        return self.id or self.token


def launcher(world: int) -> Launcher:
    """The launcher of this process.

    Args:
        world: number of processes of the launch.
    """
    parent = _parent()
    agent = blake3_hex(canonical([socket.gethostname(), boot_id(), *parent]))[:32]
    began = int(started(os.getpid()) or 0)
    meeting = [os.environ.get(variable, "") for variable in ("MASTER_ADDR", "MASTER_PORT")]
    for name, (ids, count) in LAUNCHERS.items():
        if ids[0] in os.environ and (name == "torchrun" or world > 1):
            near = [] if name in ("slurm", "mpirun") or _has_several_nodes(world) else parent
            given = [os.environ[one] for one in ids if os.environ.get(one, "none") != "none"]
            found = ".".join(given) or blake3_hex(canonical([*meeting, *near]))[:32]
            restart = int(os.environ.get(count, "0") or 0)
            return Launcher(name, found, restart, agent, began, _token(name, found, str(restart), str(world), *meeting, *near))
    return Launcher(
        "script" if BY_SCRIPT in os.environ else "",
        "",
        0,
        agent,
        began,
        _token(str(world), *meeting, *([] if _has_several_nodes(world) else parent)),
    )


def _token(*words: str) -> str:
    return blake3_hex(canonical(words))[:32]


def _has_several_nodes(world: int) -> bool:
    """Whether ranks of the launch may be on other machines, whose processes have other parents; all ranks have to say the same."""
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    if local.isdecimal():
        return int(local) < world
    return os.environ.get("MASTER_ADDR", "") not in HERE


def started_by() -> str:
    """The environment for a rank that this rank starts, so that both have the same token."""
    return " ".join([str(os.getpid()), started(os.getpid()), *_parent()])


def _parent() -> list[str]:
    """The process that started this one, or the rank that did; with its start time, since process numbers are reused."""
    found = [str(os.getppid()), started(os.getppid())]
    told = os.environ.get(STARTED_BY, "").split(" ")
    return told[2:] if len(told) == 4 and told[:2] == found else found


def place_in_launch() -> tuple[int, int]:
    """Rank and number of processes, as the environment states them; (0, 1) for a process that is not one of several.

    Raises:
        UsageError: the two do not fit together.
    """
    given = {name: os.environ.get(name) or default for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))}
    stated = " and ".join(f"`{name}={value}`" for name, value in given.items())
    if not all(value.isdecimal() for value in given.values()):
        raise UsageError(f"the environment has {stated}, which have to be numbers from 0 on; unset them for a program of one process")
    rank, world = int(given["RANK"]), int(given["WORLD_SIZE"])
    if world < 2:
        return 0, 1
    if rank >= world:
        raise UsageError(f"the environment has {stated}; ranks of {world} processes are 0 to {world - 1}")
    return rank, world


def without_rank() -> str:
    """The advice for a process without a rank, if a launcher has started several; empty for any other process."""
    name = next((name for name in TASKS if os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 1), "")
    if not name or place_in_launch()[1] > 1:
        return ""
    return (
        f"this process is one of several (`{name}={os.environ[name]}`) and has no rank yet: call `torch.distributed.init_process_group` "
        "before the model is called or probes are attached, or set `RANK` and `WORLD_SIZE`"
    )


def without_launch(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that must not be a rank of the launch of this process."""
    return {name: value for name, value in environment.items() if not OF_A_RANK.fullmatch(name)}


def ticks() -> int:
    """Ticks from the start of the machine to the start of a process; 0 if not known."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return int(time.clock_gettime(clock) * os.sysconf("SC_CLK_TCK")) if clock is not None else 0
