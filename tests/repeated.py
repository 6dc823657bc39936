"""`python -m tests.repeated`: the tests of `make test` again and again, each time in another order, next to other work.

Sums of floating-point numbers round as the kernels order them, and those differ with the machine. So each time other kernels are used.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import SystemRandom
from time import monotonic

COMMAND = (sys.executable, "-m", "pytest", "-q", "-m", "not torture", "--dist", "loadscope")
KERNELS = {
    "native": {},
    "baseline": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Prescott",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"},
}
FAILED = re.compile(r"^(?:FAILED|ERROR) .*", re.MULTILINE)


def main() -> int:
    """Run the tests so often, print a line for each time, and exit with 1 where any failed."""
    asked = _arguments()
    failed = 0
    for index in range(asked.times):
        order = asked.order + index
        kernels = asked.kernels or list(KERNELS)[index % len(KERNELS)]
        with load(asked.load):
            said, code, seconds = tested(order, kernels, asked.processes, asked.tests)
        failed += code != 0
        print(f"{index + 1:3}  --randomly-seed={order} --kernels {kernels}  {said.strip().splitlines()[-1]}  ({seconds:.0f} s)", flush=True)
        for line in FAILED.findall(said):
            print(f"     {line}", flush=True)
    print(f"{asked.times - failed} of {asked.times} passed, next to {asked.load} busy processes")
    return int(failed > 0)


def tested(order: int, kernels: str, processes: int, tests: list[str]) -> tuple[str, int, float]:
    """What pytest said, its exit status, and how long it took."""
    began = monotonic()
    parallel = ["-n", str(processes)] if processes else []
    command = [*COMMAND, f"--randomly-seed={order}", *parallel, *tests]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | KERNELS[kernels]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return done.stdout or done.stderr or "nothing was said", done.returncode, monotonic() - began


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep processors busy meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.repeated", description=__doc__)
    parser.add_argument("tests", nargs="*", help="files or folders; default: all")
    parser.add_argument("--times", type=int, default=20, help="how often")
    parser.add_argument("--load", type=int, default=os.cpu_count() or 2, help="processes that keep the machine busy meanwhile")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2, help="processes that test; 0 for one without workers")
    parser.add_argument("--order", type=int, default=SystemRandom().randrange(1 << 31), help="the first order; each time the next")
    parser.add_argument("--kernels", choices=KERNELS, help="those of one kind of CPU; default: of each in turn")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
