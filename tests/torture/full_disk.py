"""A disk that is full, at every size in steps of 4 KiB: over the whole run, and through the seal."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.report import Effort, Row
from tests.torture.shim import Fault, Mode
from tests.torture.training import fill

BLOCK = 4096
EXT4 = 32 << 20
EVERY = 25  # fewer large captures, so that the sizes to try are hundreds and not thousands
SAFE = re.compile(r"safe|kept")
ROOM = re.compile(r"\d+ bytes are free|\d+ are free|free")
STORAGE = 3


def rows(effort: Effort) -> Iterator[Row]:
    """One row: a file system of each size where one may be mounted, else a shim that counts bytes; and one for ext4."""
    mounted = can_mount(effort.folder)
    with effort.row("disk full, in steps of 4 KiB") as row:
        largest = footprint(effort)
        sizes = effort.some(range(4 * BLOCK, largest + 2 * BLOCK, BLOCK), "sizes", 8)
        refused = 0
        for answer in effort.nurseries.each(_order(effort, size, index, mounted) for index, size in enumerate(sizes)):
            row.take(answer, *faults_of(answer, ROOM))
            refused += answer["status"] == STORAGE
        row.note = f"{'tmpfs' if mounted else 'counted'}, up to {largest // 1024:,} KiB; {refused} runs met the end of the disk"
        unmount(effort.folder)
    yield row
    if mounted and shutil.which("mkfs.ext4"):
        yield _ext4(effort, largest)


def _ext4(effort: Effort, largest: int) -> Row:
    """The same on a disk of ext4, whose room a file of somebody else takes until the run is to be recovered."""
    with effort.row("disk full, ext4, in steps of 16 KiB") as row:
        sizes = effort.some(range(4 * BLOCK, largest + 4 * BLOCK, 4 * BLOCK), "ext4", 2)
        refused = 0
        for answer in effort.nurseries.each(_order_on_ext4(effort, size, index) for index, size in enumerate(sizes)):
            row.take(answer, *faults_of(answer, ROOM))
            refused += answer["status"] == STORAGE
        row.note = f"an image of {EXT4 >> 20} MiB, mounted; {refused} runs met the end of the disk"
        unmount(effort.folder)
    return row


def _order_on_ext4(effort: Effort, size: int, index: int) -> Callable[[Path], dict[str, Any]]:
    def order(place: Path) -> dict[str, Any]:
        disk, ballast = effort.folder / f"disk-{place.name}", effort.folder / f"disk-{place.name}" / "ballast"
        disk.mkdir(exist_ok=True)
        if not os.path.ismount(disk):
            image = effort.folder / f"image-{place.name}"
            with image.open("wb") as file:
                file.truncate(EXT4)
            subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
            subprocess.run(["mount", "-o", "loop", image, disk], check=True)
        shutil.rmtree(disk / "run", ignore_errors=True)
        ballast.unlink(missing_ok=True)
        early = index % 8 == 7
        if early:
            fill(str(ballast), size)
        common = {"every": EVERY, "spec": {"on_error": ("disable", "raise")[index % 2]}, "out": str(disk / "run"), "cramped": ""}
        return {**common, "ballast": str(ballast), **({} if early else {"fill": [str(ballast), size]})}

    return order


def faults_of(answer: dict[str, Any], room: re.Pattern[str] | None = None) -> list[str]:
    """What is wrong with what a run said, and how it ended, after a disk failed."""
    said, status = answer["said"], answer["status"]
    if status not in (0, STORAGE) or "Traceback" in said:
        return [f"exit status {status}, said: {said[-300:]}"]
    if status == 0:
        return []
    on_error = answer["order"].get("spec", {}).get("on_error", "disable")
    wrong = []
    if answer["acknowledged"] and not SAFE.search(said):
        wrong.append(f"does not say what is safe: {said}")
    if room is not None and not room.search(said):
        wrong.append(f"does not say how much is free: {said}")
    early = "too little disk space" in said  # said before there is much to lose, so it ends the training
    if on_error == "disable" and not early and answer.get("began") and answer.get("trained") != answer["steps"]:
        wrong.append(f"training ended after {answer.get('trained')} of {answer['steps']} steps: {said}")
    return wrong


def can_mount(folder: Path) -> bool:
    """Whether a small file system in memory may be mounted here."""
    place = folder / "can-mount"
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", place], check=True)
    return done.returncode == 0


def unmount(folder: Path) -> None:
    """Take away every disk below a folder."""
    for place in folder.glob("disk-*"):
        if os.path.ismount(place):
            subprocess.run(["umount", "--lazy", place], check=True)


def footprint(effort: Effort) -> int:
    """Bytes that the run needs when nothing is in its way: what is sealed, and one journal beside."""
    (answer,) = effort.nurseries.each([lambda place: {"every": EVERY}])
    sizes = [path.stat().st_blocks * 512 for path in Path(answer["order"]["out"]).iterdir()]
    return sum(sizes) + max(sizes)


def _order(effort: Effort, size: int, index: int, mounted: bool) -> Callable[[Path], dict[str, Any]]:
    def order(place: Path) -> dict[str, Any]:
        common = {"every": EVERY, "spec": {"on_error": ("disable", "raise")[index % 2]}}
        if not mounted:
            fault = Fault(Mode.ROOM, size).text(place / "run")
            return {**common, "fault": fault, "sealer_fault": fault, "cramped": fault}
        disk = effort.folder / f"disk-{place.name}"
        disk.mkdir(exist_ok=True)
        if os.path.ismount(disk):
            subprocess.run(["umount", "--lazy", disk], check=True)
        # One in eight is small from the start, and refused as such; on the others somebody else takes the room later.
        early = index % 8 == 7
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size if early else '64m'}", "tmpfs", disk], check=True)
        shrink = {} if early else {"shrink": [str(disk), size]}
        return {**common, "out": str(disk / "run"), "disk": str(disk), "cramped": "", **shrink}

    return order
