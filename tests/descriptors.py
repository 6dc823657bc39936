"""The files that this process holds open, so that a test can count its own and no other test's."""

from pathlib import Path


def open_below(folder: Path) -> int:
    """Count the open descriptors of this process whose file is below `folder`.

    A count of all descriptors also changes when garbage of an earlier test is collected in between.
    """
    return sum(_file(entry).is_relative_to(folder) for entry in Path("/proc/self/fd").iterdir())


def _file(descriptor: Path) -> Path:
    try:
        return descriptor.readlink()
    except FileNotFoundError:  # the descriptor with which the directory itself was read
        return Path("/")
