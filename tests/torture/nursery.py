"""A process that has imported everything once and forks a training for each order: hundreds of trials a minute.

`python -m tests.torture.nursery` reads one JSON order per line and answers with one JSON line; the shim is preloaded into it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from types import TracebackType
from typing import Any

from tests.processes.running import sealers

ROOT = Path(__file__).parents[2]
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned sealers become ours, so that their end can be waited for
PATIENCE = 60.0
BROKEN = 70  # exit status of a training that raised what no fault explains


def serve() -> int:
    """Answer orders until stdin closes."""
    import torch

    import probes.proof.verify
    import probes.runner.attach
    import probes.script.session  # noqa: F401 - imported in each fork, they take three quarters of a trial

    torch.set_num_threads(1)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        order = json.loads(line)
        began = monotonic()
        if "trial" in order:
            print(json.dumps(_trial(order)), file=answers, flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            return _child(order)
        twin = os.fork() if "twin" in order else -1
        if twin == 0:
            return _child(order | order["twin"])
        if "gate" in order:
            sleep(0.01)
            Path(order["gate"]).touch()
        answer = {**_watch(pid, order, twin), "seconds": monotonic() - began, **_told(order)}
        if "recover_fault" in order:
            answer["recovered"] = _recover_with(order)
        if order.get("examine"):
            answer |= _examined(order)
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def _trial(order: dict[str, Any]) -> dict[str, Any]:
    """A trial of many starts, which looks at the run itself."""
    from tests.torture.generated import trial

    try:
        return {**trial(order), "orphans": _reap(order)}
    except Exception:  # any failure is a finding
        return {"status": 0, "hung": False, "starts": 0, "problems": [f"a traceback: {traceback.format_exc()}"]}


def _child(order: dict[str, Any]) -> int:
    """Train, then leave at once, or through the interpreter's own end where the order asks for that."""
    from tests.torture.training import train

    signal.signal(signal.SIGINT, signal.default_int_handler)
    errors = os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(0)
    if order.get("finalize"):
        return train(order)
    code = BROKEN
    try:
        code = train(order)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _recover_with(order: dict[str, Any]) -> int:
    """Put the run in order in a process that meets a fault on the way; its exit status."""
    from probes.run_directory.recover import recover
    from tests.torture import shim

    pid = os.fork()
    if pid == 0:
        shim.arm(order["recover_fault"])
        try:
            recover(Path(order["out"]))
            os._exit(0)
        except BaseException:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _told(order: dict[str, Any]) -> dict[str, Any]:
    """What the training wrote down of itself next to its acknowledgements."""
    notes = Path(order["acks"] + ".notes")
    lines = notes.read_text().splitlines() if notes.exists() else []
    return {key: json.loads(value) for key, _, value in (line.partition(" ") for line in lines)}


def _watch(pid: int, order: dict[str, Any], twin: int = -1) -> dict[str, Any]:
    """Wait for the training and its orphans; kill it when the order says so, or when it never ends."""
    began = monotonic()
    kill_at = order.get("kill_after")
    status: int | None = None
    while status is None:
        done, found = os.waitpid(pid, os.WNOHANG)
        if done:
            status = found
            break
        waited = monotonic() - began
        if kill_at is not None and waited >= kill_at:
            _kill(pid, order)
            kill_at = None
        if waited > order.get("patience", PATIENCE):
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
            return {"status": os.waitstatus_to_exitcode(status), "hung": True, "orphans": _reap(order)}
        sleep(0.0005)
    ended = monotonic() - began
    answer = {"status": os.waitstatus_to_exitcode(status), "hung": False, "ended": ended, "finished_at": began + ended}
    if twin > 0:
        answer["twin_status"] = os.waitstatus_to_exitcode(os.waitpid(twin, 0)[1])
        answer["twin_said"] = Path(order["twin"]["errors"]).read_text()
        acks = Path(order["twin"]["acks"])
        if answer["twin_status"] == 0 and acks.exists():
            acks.replace(order["acks"])
    return answer if order.get("leave_orphans") else answer | {"orphans": _reap(order)}


def _kill(pid: int, order: dict[str, Any]) -> None:
    """Kill the training, and with `kill_sealer` its sealer too."""
    for victim in (pid, *(sealers(order["out"]) if order.get("kill_sealer") else [])):
        with suppress(ProcessLookupError):
            os.kill(victim, order.get("kill_signal", signal.SIGKILL))


def _reap(order: dict[str, Any]) -> list[int]:
    """Wait until every sealer that the training left behind is gone."""
    found, deadline = [], monotonic() + order.get("orphan_patience", PATIENCE)
    while True:
        try:
            done, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if done:
            found.append(os.waitstatus_to_exitcode(status))
        elif monotonic() > deadline:
            for child in _children(os.getpid()):
                os.kill(child, signal.SIGKILL)
                os.kill(child, signal.SIGCONT)
                found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            sleep(0.0005)


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _examined(order: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    from tests.torture.checking import acknowledged, check, examine
    from tests.torture.training import EVERY

    out, acks, every = Path(order["out"]), acknowledged(Path(order["acks"])), order.get("every", EVERY)
    try:
        cramped = check(out, acks, every) if "cramped" in order else None
        if cramped is not None:
            cramped.problems += _recovered_without_room(order)
        found = examine(out, acks, every)
        if cramped is not None:
            found.lost, found.wrong = max(found.lost, cramped.lost), found.wrong + cramped.wrong
            found.problems += cramped.problems
        return asdict(found)
    except Exception:  # any failure is a finding
        return {"acknowledged": 0, "lost": 0, "wrong": 0, "problems": [f"a traceback: {traceback.format_exc()}"]}


def _recovered_without_room(order: dict[str, Any]) -> list[str]:
    """Recover on the full disk, which may be refused but in no other way, and give the disk room then."""
    from probes.errors import ProbesError
    from probes.run_directory.recover import recover
    from tests.torture import shim
    from tests.torture.quota import limit

    shim.arm(order["cramped"])
    try:
        if Path(order["out"]).exists():
            recover(Path(order["out"]))
    except ProbesError:
        pass
    except Exception:  # any failure is a finding
        return [f"recover on a full disk: {traceback.format_exc()}"]
    finally:
        shim.arm("")
        if "ballast" in order:
            Path(order["ballast"]).unlink(missing_ok=True)
        if "disk" in order:
            subprocess.run(["mount", "-o", "remount,size=64m", order["disk"]], check=True)
        if "quota" in order:
            limit(order["quota"][0], "none")
    return []


class Nursery:
    """The client's end of one nursery."""

    def __init__(self, library: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
        environment.pop("TORTURE", None)
        command = [sys.executable, "-m", "tests.torture.nursery"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Have one training done, and return what became of it.

        Raises:
            AssertionError: the nursery itself has died.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], 600)[0]:
            self.process.kill()
        line = self.process.stdout.readline()
        assert line, f"the nursery died of {order}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Let it go."""
        with self.process:
            pass


class Nurseries:
    """Several nurseries, each with a folder of its own, that share the trials among them.

    Args:
        folder: where trials are written; a file system in memory is fastest.
        library: the shim.
        count: how many there are.
    """

    def __init__(self, folder: Path, library: Path, count: int) -> None:
        self.folder = folder
        self._nurseries = [Nursery(library) for _ in range(count)]
        self._free: SimpleQueue[tuple[Nursery, Path]] = SimpleQueue()
        for index, nursery in enumerate(self._nurseries):
            place = folder / f"trial-{index}"
            place.mkdir(parents=True, exist_ok=True)
            self._free.put((nursery, place))

    @property
    def count(self) -> int:
        """How many trials go on at a time."""
        return len(self._nurseries)

    def each(self, orders: Iterable[Callable[[Path], dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        """The answers to orders, each made for a folder that is empty; `out` is the run directory in it."""
        with ThreadPoolExecutor(len(self._nurseries)) as pool:
            yield from pool.map(self._one, orders)

    def _one(self, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        nursery, place = self._free.get()
        try:
            for left in place.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            order = order_in(place) | make(place)
            answer = nursery.ask(order)
            errors = Path(order["errors"])
            return answer | {"said": errors.read_text(errors="replace") if errors.exists() else "", "order": order}
        finally:
            self._free.put((nursery, place))

    def __enter__(self) -> Nurseries:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for nursery in self._nurseries:
            nursery.close()


def order_in(place: Path) -> dict[str, Any]:
    """An order for a training in a folder, to be examined afterwards."""
    return {"out": str(place / "run"), "acks": str(place / "acks"), "errors": str(place / "errors"), "examine": True}


if __name__ == "__main__":
    sys.exit(serve())
