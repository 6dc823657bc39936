"""Launches whose ranks are killed at any instant, restarted, resumed in another world, or run out of disk, one of them or several."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any, NamedTuple

import numpy as np

import probes
from probes.capture_file.read import SealedFile
from tests.torture.checking import Count
from tests.torture.report import Effort, Row
from tests.warm import programs

TRIALS = 40
EPOCHS, STEPS = 3, 4
STARTS = 4  # of a launch at most; the last one is left alone
LONGEST = 1.6  # seconds until a kill; most ranks have ended by then
FULL = 64 << 10  # bytes of a file, for a rank whose disk is full
UNTOLD = 120  # Python's exit code if stderr, a file of that disk here, did not take the message

PROGRAM = """
import json, os, resource, sys, time
import torch
from torch import nn
import probes

order, rank = json.loads(sys.argv[1]), int(os.environ["RANK"])
torch.manual_seed(order["seed"] + rank)  # each rank draws other numbers
if order["full"].get(str(rank)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (order["full"][str(rank)],) * 2)
acks = os.open(order["acks"] + f".{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
spec = {"version": 1, "name": "r", "probes": {"p": {"modules": ["0"], "values": ["output"]}}}
model = nn.Sequential(nn.Identity())
committed = None
try:
    with probes.attach(model, spec, out=order["out"], resume=order["resume"]) as run:
        for epoch in run.epochs(order["epochs"]):
            for step in run.steps(range(order["steps"])):
                if committed is not None and run.failure is None:
                    os.write(acks, f"{committed[0]} {committed[1]} {order['start']} {committed[2]}\\n".encode())
                noise = torch.rand(1).item()
                model(torch.tensor([rank, epoch, step, order["start"], noise], dtype=torch.float64))
                committed = epoch, step, noise.hex()
                time.sleep(0.01)
except probes.ProbesError as error:
    print(error, file=sys.stderr)
    sys.exit(3 if order["full"] else 5)
"""


class Launch(NamedTuple):
    """One start of the ranks.

    Attributes:
        world: how many there are.
        restart: how often the launcher says that it has started them again.
        resume: whether the command says so; that of a job stays the same when it is restarted.
        kills: seconds after which a rank is killed, by rank.
        full: the largest file that a rank can write, by rank.
    """

    world: int
    restart: int
    resume: bool
    kills: Mapping[int, float]
    full: Mapping[int, int]


def rows(effort: Effort) -> Iterator[Row]:
    """One row."""
    with effort.row("ranks of a launch killed, restarted and resumed in other worlds") as row:
        chance, found = effort.chance("ranks"), Counter[str]()
        for number in range(effort.count(TRIALS, 2)):
            folder = effort.folder / f"ranks-{number}"
            folder.mkdir()
            row.trials += 1
            row.count.add(_tried(folder, Random(chance.random()), found))
        row.note = (
            f"{found['starts']} starts of {found['ranks']} ranks, {found['kills']} killed, {found['full']} with a full disk, "
            f"{found['worlds']} in another world; {found['captures']:,} captures at the end, {found['doubled']} doubled"
        )
    yield row


def _tried(folder: Path, chance: Random, found: Counter[str]) -> Count:
    """One launch, started again until it has come to its end."""
    count, job, seed = Count(), 0, chance.randrange(1 << 20)
    world, restart = chance.choice((1, 2, 3)) + 1, 0
    for start in range(STARTS):
        last = start == STARTS - 1
        some = [] if last else chance.sample(range(world), chance.randint(1, world))
        kills = {rank: chance.random() * LONGEST for rank in some if chance.random() < 0.8}
        full = {} if last else {rank: chance.randrange(1, FULL) for rank in some if rank not in kills}
        launch = Launch(world, restart, job > 0, kills, full)
        codes = _started(folder, launch, start, f"job-{job}", seed)
        found += Counter(starts=1, ranks=world, kills=sum(code[0] == -9 for code in codes), full=len(full))
        odd = [
            (rank, *code)
            for rank, code in enumerate(codes)
            if code[0] not in (0, *((-9,) if rank in kills else ()), *((3, UNTOLD) if full else ()))
        ]
        count.problems += [f"start {start}, rank {rank} ended with {code}: {said[-300:]}" for rank, code, said in odd]
        if last:
            break
        restart += 1
        if chance.random() < 0.5:
            job, restart, world = job + 1, 0, max(1, world + chance.choice((-1, 0, 1)))
            found["worlds"] += world != launch.world
    count.add(_checked(folder, world, found))
    return count


def _started(folder: Path, launch: Launch, start: int, job: str, seed: int) -> list[tuple[int, str]]:
    """Exit code and last words of each rank."""
    about = {**os.environ, "WORLD_SIZE": str(launch.world), "TORCHELASTIC_RUN_ID": job}
    about["TORCHELASTIC_RESTART_COUNT"] = str(launch.restart)
    order: dict[str, Any] = {"out": str(folder / "run"), "acks": str(folder / "acks"), "resume": launch.resume}
    order |= {"epochs": EPOCHS, "steps": STEPS, "start": start, "seed": seed + 100 * start}
    order["full"] = {str(rank): size for rank, size in launch.full.items()}

    def run(rank: int) -> tuple[int, str]:
        said = folder / f"said.{start}.{rank}"
        with said.open("w+b") as file:
            program = programs.start("-c", PROGRAM, json.dumps(order), env={**about, "RANK": str(rank)}, stderr=file.fileno())
            timer = Timer(launch.kills.get(rank, 0), _kill, [program])
            if rank in launch.kills:
                timer.start()
            code = program.wait()
            timer.cancel()
        return code, said.read_text(errors="replace")

    with ThreadPoolExecutor(launch.world) as pool:
        return [*pool.map(run, range(launch.world))]


def _kill(program: programs.Program) -> None:
    with suppress(ProcessLookupError):
        program.kill()


def _checked(folder: Path, world: int, found: Counter[str]) -> Count:
    """What is lost, wrong or doubled at the end."""
    out, count = folder / "run", Count()
    stored: dict[tuple[int, int, int], set[bytes]] = {}
    for path in out.glob("epoch-*.h5"):
        file = SealedFile(path)
        for part in (file.part(address) for address in file.addresses):
            for index, clock in enumerate(part.clocks):
                value = np.asarray(part.elements(index, index + 1)).view("<f8")
                place = int(clock["rank"]), int(clock["epoch"]), int(clock["step"])
                count.wrong += tuple(value[:3].astype(int).tolist()) != place
                stored.setdefault(place, set()).add(value[3:].tobytes())
    for path in folder.glob("acks.*"):
        rank = int(path.suffix[1:])
        for epoch, step, start, noise in (line.split() for line in path.read_text().splitlines() if line.count(" ") == 3):
            count.acknowledged += 1
            wanted = np.array([float(start), float.fromhex(noise)]).tobytes()
            count.lost += wanted not in stored.get((rank, int(epoch), int(step)), set())
    run = probes.open(out)
    count.problems += [] if run.state == dict.fromkeys(range(EPOCHS), "complete") else [f"the epochs are {run.state}: {run.not_shown}"]
    clocks = Counter((int(one["epoch"]), int(one["rank"]), int(one["step"])) for one in run["p", "0"].clocks)
    found["captures"] += clocks.total()
    found["doubled"] += sum(number - 1 for number in clocks.values())
    shown = {epoch: {rank for at, rank, _ in clocks if at == epoch} for epoch in range(EPOCHS)}
    for epoch, ranks in shown.items():
        if ranks != set(range(len(ranks))) or sum(at == epoch for at, _, _ in clocks) != len(ranks) * STEPS:
            count.problems.append(f"epoch {epoch} has captures of the ranks {sorted(ranks)}")
    count.problems += ["captures are doubled"] if clocks.total() > len(clocks) else []
    verdict = probes.verify(out)
    count.problems += [f"verify: {finding}" for finding in verdict.findings if not verdict.ok]
    return count
