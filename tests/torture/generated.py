"""Programs drawn at random, killed and started again with the same words, recovered in between, on disks with locks and without."""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EIO, ENOSPC
from pathlib import Path
from resource import RLIMIT_FSIZE, RLIMIT_NOFILE, getrlimit, setrlimit
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, signal
from time import monotonic, sleep
from typing import Any

from probes.plain_file import STANDARD
from tests.processes.running import sealers
from tests.torture.report import Effort, Row
from tests.torture.shim import ALL, Fault, Mode

TRIALS = 300
MOST_STARTS = 5
LONGEST = 60.0
STYLES = ("steps", "step", "phase", "script", "workers")
CONTEXTS = ("fork", "spawn", "forkserver")
FILES = 60  # of a program that has closed all others
LARGEST = 1 << 20
TOUCHED = 99  # exit code of a program that found them written to, or closed

_OWN: list[int] = []


def rows(effort: Effort) -> Iterator[Row]:
    """One row with locks, one without, and one of programs that lack something of their machine."""
    faults = "loops, phases, segments, scripts, workers of three kinds; a kill at a call or at any time, EIO, ENOSPC, recover beside"
    lacks = "no descriptor left, TMPDIR that is not there, a largest size of a file, a clock that jumps, files that the program closes"
    for name, locks, lacking, share, note in (
        ("generated programs, killed and resumed", True, False, 1, faults),
        ("generated programs, killed and resumed, where locks fail", False, False, 6, faults),
        ("generated programs that lack something of their machine", True, True, 3, lacks),
    ):
        chance = effort.chance(name)
        with effort.row(name) as row:
            starts = 0
            seeds = [chance.randrange(1 << 30) for _ in range(effort.count(TRIALS // share, 3 if share == 1 else 1))]
            for answer in effort.nurseries.each(_order(seed, locks, lacking) for seed in seeds):
                row.take(answer)
                starts += answer["starts"]
            row.note = f"{starts} starts; {note}"
        yield row


def _order(seed: int, locks: bool, lacking: bool) -> Callable[[Path], dict[str, Any]]:
    common = {"trial": seed, "locks": locks, "lacking": lacking, "examine": False}
    # The worker of a forkserver whose training was killed never ends: its parent, by which it would know, is the server.
    return lambda place: {**common, "truth": str(place / "truth"), "orphan_patience": 15.0}


def drawn(seed: int) -> tuple[dict[str, Any], random.Random]:
    """A program, and the chance that decides what happens to it."""
    chance = random.Random(seed)
    program = {
        "style": chance.choice(STYLES),
        "context": chance.choice(CONTEXTS),
        "epochs": chance.randint(1, 3),
        "steps": chance.randint(3, 12),
        "durability": chance.choice(["process", "power"]),
        "segment": chance.choice([0, 0, 3]),
        "wide": chance.choice([0, 0, 3_000, 9_000, 15_000, 20_000]),  # of 8 bytes: with a digest, without one, and written by themselves
        "recycles": chance.random() < 0.5,
    }
    return program, chance


def trial(order: dict[str, Any]) -> dict[str, Any]:
    """Start a program until it comes to its end, and look after each start; in the nursery."""
    import probes.proof.verify
    import probes.runner.attach
    import probes.script.session  # noqa: F401 - once, and not in each start
    from tests.torture.program import compare

    program, chance = drawn(order["trial"])
    if order["lacking"] and program["style"] == "workers":
        program["style"] = "steps"  # workers themselves need descriptors and a folder for temporary files
    order = {**order, **program}
    total: dict[str, Any] = {"acknowledged": 0, "lost": 0, "wrong": 0, "problems": [], "status": 0, "starts": 0, "hung": False}
    for number in range(1, MOST_STARTS + 1):
        last = number == MOST_STARTS
        asked = {**order, "start": number, **({} if last else _fault(order, chance))}
        total["starts"] += 1
        before = len(_steps(order))
        status, hung = _start(asked, chance, last)
        total["hung"] = total["hung"] or hung
        _until_sealed(order)  # else a journal may become a file between the look at its name and at its content
        _hear(total, compare(order), asked)
        new = _steps(order)[before:]
        if "lack" in asked and new and (len(new) % order["steps"] or max(new) + 1 < order["epochs"]):
            total["problems"].append(f"seed {order['trial']} {asked['lack']}: the training ended after {len(new)} steps: {_said(order)}")
        if status == TOUCHED:
            total["problems"].append(f"seed {order['trial']}: a file of the program was written to, or closed: {_said(order)}")
        if status == 0:
            break
        if last and not hung:
            total["problems"].append(f"seed {order['trial']}: the last start, without a fault, ended with {status}: {_said(order)}")
    problem = _recovered(order, LONGEST)
    total["problems"] += [f"seed {order['trial']}: {problem}"] if problem else []
    _hear(total, compare(order), order)
    return total


def _until_sealed(order: dict[str, Any]) -> None:
    """Wait for the sealer that a killed training has left."""
    deadline = monotonic() + LONGEST
    while sealers(order["out"]) and monotonic() < deadline:
        sleep(0.005)


def _fault(order: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """What happens to a start: at one of its calls on the disk, at one of its sealer's, or at any time."""
    if order["lacking"]:
        return {"lack": [chance.choice([*LACKS]), chance.randint(0, 16)]}
    kind = chance.choice(["call", "sealer", "time", "time", "error", "none"])
    at = int(chance.expovariate(1 / 40)) + 1
    if kind in ("call", "sealer"):
        mode = chance.choice([Mode.SIGNAL_BEFORE, Mode.SIGNAL_WITHIN, Mode.SIGNAL_AFTER])
        fault = Fault(mode, at, int(ALL), chance.choice([SIGKILL, SIGKILL, SIGTERM, SIGHUP]))
        return {"fault" if kind == "call" else "sealer_fault": fault.text(order["out"])}
    if kind == "error" and order["style"] != "script":
        return {"fault": Fault(Mode.FAIL_ONCE, at, int(ALL), chance.choice([EIO, ENOSPC])).text(order["out"])}
    if kind == "time":
        longest = 4.0 if order["style"] == "workers" else 0.4  # one that is spawned imports torch first
        return {"kill": [chance.uniform(0, longest), int(chance.choice([SIGKILL, SIGTERM, SIGINT, SIGHUP])), chance.random() < 0.3]}
    return {}


def _start(order: dict[str, Any], chance: random.Random, last: bool) -> tuple[int, bool]:
    pid = os.fork()
    if pid == 0:
        _child(order)
    began, beside = monotonic(), -1
    kill_at, number, both = order.get("kill", [LONGEST, SIGKILL, False])
    look_at = chance.uniform(0, 0.6) if chance.random() < 0.5 and not last else 2 * LONGEST
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        waited = monotonic() - began
        if done:
            break
        if waited >= look_at and beside < 0:
            beside = _recover_beside(order)
        if waited >= kill_at:
            with suppress(ProcessLookupError):
                for victim in (*((*_children(pid), *sealers(order["out"])) if both else ()), pid):
                    os.kill(victim, number)
            kill_at, number = LONGEST, SIGKILL
        sleep(0.001)
    if beside < 0 and look_at < LONGEST:
        beside = _recover_beside(order)  # at once, while the sealer of the one that was killed may still work
    if beside >= 0:
        os.waitpid(beside, 0)
    return os.waitstatus_to_exitcode(status), waited > LONGEST


def _child(order: dict[str, Any]) -> None:
    from tests.torture.program import run

    signal(SIGINT, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    errors = os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    code = 70
    try:
        if "lack" in order:
            LACKS[order["lack"][0]](order["lack"][1])
        code = run(order)
        code = code if all(map(_is_empty, _OWN)) else TOUCHED
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # as at the end of an interpreter
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def _few_descriptors(more: int) -> None:
    there = len(list(Path("/proc/self/fd").iterdir()))
    setrlimit(RLIMIT_NOFILE, (there + more, getrlimit(RLIMIT_NOFILE)[1]))


def _no_folder_for_temporary_files(_: int) -> None:
    os.environ["TMPDIR"] = os.environ["TMP"] = os.environ["TEMP"] = "/nowhere"
    tempfile.tempdir = None


def _short_files(units: int) -> None:
    setrlimit(RLIMIT_FSIZE, ((units + 1) << 16, getrlimit(RLIMIT_FSIZE)[1]))


def _jumping_clock(seed: int) -> None:
    chance, real = random.Random(seed), time.time
    time.time = lambda: real() + chance.choice([0, 0, -3e8, 3e8, -5.0, 3600.0])
    time.time_ns = lambda: int(time.time() * 1e9)


def _closed_files(units: int) -> None:
    """A step closes every file but that of the truth, and opens others, which get the same numbers."""
    from tests.torture.program import Truth

    step, calls = Truth.step, iter(range(LARGEST))

    def closing(truth: Truth, *place: Any) -> None:
        step(truth, *place)
        if next(calls) != units:
            return
        for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
            with suppress(OSError):
                if number > STANDARD and not os.path.samestat(os.fstat(number), truth.path.stat()):
                    os.close(number)
        for _ in range(FILES):
            number, name = tempfile.mkstemp()
            Path(name).unlink()
            _OWN.append(number)

    Truth.step = closing  # type: ignore[method-assign]  # in this process only


def _is_empty(number: int) -> bool:
    try:
        return os.fstat(number).st_size == 0
    except OSError:
        return False


LACKS: dict[str, Callable[[int], None]] = {
    "descriptors": _few_descriptors,
    "TMPDIR": _no_folder_for_temporary_files,
    "size": _short_files,
    "clock": _jumping_clock,
    "files": _closed_files,
}


def _steps(order: dict[str, Any]) -> list[int]:
    """The epochs of the training steps that a program has come to, in all of its starts."""
    from tests.torture.program import read

    return [place[1] for place, each in read(Path(order["truth"]))[0].items() if place[2] == "train" for _ in each]


def _patient(order: dict[str, Any]) -> None:
    from probes.run_directory.owner import claim, heartbeat

    if not order["locks"]:
        os.environ["TORTURE_NO_LOCKS"] = "1"
        heartbeat.BEAT_SECONDS = claim.BEAT_SECONDS = 0.2
        claim.PATIENCE = 3.0


def _recover_beside(order: dict[str, Any]) -> int:
    """Recover in a process of its own, whatever else goes on in the directory; it may be refused."""
    from probes.errors import ProbesError
    from probes.run_directory.recover import recover

    pid = os.fork()
    if pid:
        return pid
    _patient(order)
    with suppress(ProbesError):
        recover(Path(order["out"]))
    os._exit(0)


def _recovered(order: dict[str, Any], longest: float) -> str:
    """Put the run in order, and verify it; what is wrong, if anything."""
    from probes.errors import ProbesError
    from probes.proof.verify import verify
    from probes.run_directory.recover import DAMAGE, recover

    out = Path(order["out"])
    if not out.exists():
        return ""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _patient(order)
        said = ""
        try:
            recovery = recover(out)
            said = "; ".join(f"recover: {one.file} {one.action}: {one.message}" for one in recovery.findings if one.action in DAMAGE)
            if any(out.glob("ledger*.jsonl")):
                said += "; ".join(f"verify: {one.code} {one.file}: {one.message}" for one in verify(out).findings if not one.note)
        except ProbesError as error:
            said = f"recover: {error}"
        except BaseException:  # any failure is a finding
            said = traceback.format_exc()
        os.write(write, said.encode()[:60_000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def _hear(total: dict[str, Any], found: dict[str, Any], order: dict[str, Any]) -> None:
    total["acknowledged"] = max(total["acknowledged"], found["acknowledged"])
    total["lost"] = max(total["lost"], found["lost"])
    total["wrong"] = max(total["wrong"], found["wrong"])
    told = {key: value for key, value in order.items() if key in ("start", "style", "fault", "sealer_fault", "kill")}
    total["problems"] += [f"seed {order['trial']} {json.dumps(told)}: {problem}" for problem in found["problems"]][:3]


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _said(order: dict[str, Any]) -> str:
    path = Path(order["errors"])
    return path.read_text(errors="replace")[-600:] if path.exists() else ""


def main() -> int:
    """`python -m tests.torture.generated FIRST [LAST] [nolocks] [lacking]`: trials in this process, to look into them."""
    import tempfile

    from tests.torture.shim import build

    place = Path(tempfile.mkdtemp())
    if "LD_PRELOAD" not in os.environ:
        os.environ["LD_PRELOAD"] = str(build(place))
        os.execv(sys.executable, [sys.executable, "-m", "tests.torture.generated", *sys.argv[1:]])
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    wrong = 0
    for seed in range(numbers[0], numbers[-1] + 1):
        here = place / str(seed)
        here.mkdir()
        made = {
            "out": str(here / "run"),
            "errors": str(here / "errors"),
            **_order(seed, "nolocks" not in sys.argv, "lacking" in sys.argv)(here),
        }
        began = monotonic()
        found = trial(made)
        print(f"{monotonic() - began:.1f} s", here, drawn(seed)[0], json.dumps(found, indent=1 if found["problems"] else None), flush=True)
        wrong += bool(found["problems"])
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
