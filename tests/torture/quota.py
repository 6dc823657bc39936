"""A quota that is used up in the middle of a run, at every size: on btrfs, where a subvolume has one that holds for root as well."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.full_disk import BLOCK, EVERY, can_mount, faults_of, footprint, unmount
from tests.torture.report import Effort, Row

DISK = 256 << 20
STEP = 16 * BLOCK
STORAGE = 3


def rows(effort: Effort) -> Iterator[Row]:
    """One row; none where no btrfs can be made and mounted."""
    if shutil.which("mkfs.btrfs") is None or not can_mount(effort.folder):
        return
    with effort.row("a quota is used up, btrfs, in steps of 64 KiB") as row:
        sizes = effort.some(range(STEP, footprint(effort) + STEP, STEP), "quota", 2)
        refused = 0
        for answer in effort.nurseries.each(_order(effort, size, index) for index, size in enumerate(sizes)):
            row.take(answer, *faults_of(answer))
            refused += answer["status"] == STORAGE
        row.note = f"an image of {DISK >> 20} MiB, mounted; {refused} runs met their quota"
        unmount(effort.folder)
    yield row


def limit(subvolume: str, size: str) -> None:
    """Let a subvolume take so many bytes, or any number (`none`); asked of the disk, since a full subvolume takes no words any more."""
    found = subprocess.run(["btrfs", "inspect-internal", "rootid", subvolume], check=True, capture_output=True, text=True)
    group, disk = f"0/{found.stdout.strip()}", str(Path(subvolume).parent)
    subprocess.run(["btrfs", "qgroup", "limit", size, group, disk], check=True, stdout=subprocess.DEVNULL)


def _order(effort: Effort, size: int, index: int) -> Callable[[Path], dict[str, Any]]:
    def order(place: Path) -> dict[str, Any]:
        disk = effort.folder / f"disk-{place.name}"
        share = disk / "share"
        if not disk.is_dir() or not os.path.ismount(disk):
            _make(disk, effort.folder / f"image-{place.name}")
        if share.exists():
            subprocess.run(["btrfs", "--quiet", "subvolume", "delete", "--commit-after", share], check=True)
        subprocess.run(["btrfs", "--quiet", "subvolume", "create", share], check=True)
        quota = [str(share), str(size)]
        common = {"every": EVERY, "spec": {"on_error": ("disable", "raise")[index % 2]}, "out": str(share / "run"), "cramped": ""}
        return {**common, "quota": quota}

    return order


def _make(disk: Path, image: Path) -> None:
    disk.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(DISK)
    subprocess.run(["mkfs.btrfs", "--quiet", "--force", image], check=True, stderr=subprocess.DEVNULL)  # its notes on defaults
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    subprocess.run(["btrfs", "quota", "enable", disk], check=True)
