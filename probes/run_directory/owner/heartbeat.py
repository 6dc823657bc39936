"""The child that shows, where a file system has no locks of its own, that the owner of a run directory lives.

`python -m probes.run_directory.owner.heartbeat CLAIM` sets the time of a claim again and again, until nobody holds the other end of its
stdin any more: neither the training process nor its sealer. No step of the training, however long, makes the owner look dead.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

BEAT_SECONDS = 5.0


def main(path: str, seconds: float = BEAT_SECONDS) -> None:
    """Update the time until stdin closes; the time 0 then says that the owner has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    claim = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)  # the open file, also after it was renamed
    owners = select.poll()
    owners.register(0, select.POLLIN | select.POLLHUP)
    while not owners.poll(seconds * 1000):
        with suppress(OSError):  # a disk that fails for a while does not end the owner
            os.utime(claim)
    with suppress(OSError):
        os.utime(claim, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
