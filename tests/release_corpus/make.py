"""Make every run of the corpus with the release that is importable, and what a reader has to find in them.

`python make.py VERSION` writes `VERSION.tar.xz` and `VERSION.json` next to this file, and refuses where one of them is there
already. Nothing of the machine gets into the files: the runs are made in a directory of a neutral name, under a name, a boot
and a processor that are invented, and what was written is searched for the real ones.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLACE = Path("/tmp/corpus")  # a name of no machine in particular; it stands in the manifests
BOOT = "11111111-2222-4333-8444-555555555555"
NEUTRAL = f'''
import pathlib, platform, socket
told = {{"/proc/sys/kernel/random/boot_id": "{BOOT}\\n", "/proc/cpuinfo": "model name\\t: Example Processor\\n"}}
read = pathlib.Path.read_text
pathlib.Path.read_text = lambda path, *a, **k: told[str(path)] if str(path) in told else read(path, *a, **k)
platform.release = lambda: "6.0.0"
socket.gethostname = lambda: "corpus"
'''
CUT = ("killed-torn", "killed-power-torn")  # their journals end within a record


def main(version: str) -> None:
    """Make the corpus of a version."""
    archive, expected = HERE / f"{version}.tar.xz", HERE / f"{version}.json"
    for path in (archive, expected):
        if path.exists():
            sys.exit(f"{path.name} is there already; the corpus of a version is made once")
    PLACE.mkdir()  # a second program must not be making it
    try:
        shutil.copy(HERE / "runs.py", PLACE)
        (PLACE / "sitecustomize.py").write_text(NEUTRAL)
        names = make_all()
        search(PLACE, names)
        found = subprocess.run(
            [sys.executable, str(HERE / "expect.py"), str(PLACE), BOOT, *names], check=True, stdout=subprocess.PIPE, text=True
        )
        pack(archive, names)
        expected.write_text(found.stdout)
    finally:
        shutil.rmtree(PLACE)


def make_all() -> list[str]:
    """Make every run; their names."""
    sys.path[:0] = [str(PLACE)]
    from runs import RUNS, SCRIPT, SPEC, Planned

    (PLACE / "train.py").write_text(SCRIPT)
    (PLACE / "spec.yaml").write_text(SPEC)

    def make(name: str, planned: Planned) -> None:
        for stage in range(planned.stages):
            words = ["-m", "probes", *planned.argv] if planned.argv else ["runs.py", name, str(stage)]
            started = [
                subprocess.Popen([sys.executable, *words], cwd=PLACE, env=environment(rank, planned.ranks)) for rank in range(planned.ranks)
            ]
            wanted = -9 if stage in planned.killed else int(stage in planned.failed)
            ended = [process.wait(120) for process in started]
            if ended != [wanted] * planned.ranks:
                sys.exit(f"stage {stage} of {name} ended with {ended}, not with {wanted}")
        if name in CUT:
            (journal,) = (PLACE / name).glob("epoch-*.journal")
            os.truncate(journal, journal.stat().st_size - 40)

    for name, planned in RUNS.items():
        print(name, file=sys.stderr)
        make(name, planned)
    return list(RUNS)


def environment(rank: int, ranks: int) -> dict[str, str]:
    """The environment of a process that makes a run: nothing of the user's but the way to Python."""
    paths = os.pathsep.join([str(PLACE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    found = {"PATH": os.environ["PATH"], "HOME": str(PLACE), "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    found |= {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/tmp", "GIT_CEILING_DIRECTORIES": "/tmp"}
    if ranks > 1:
        found |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": "corpus"}
    return found


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder, in the order of the names."""
    yield from sorted(path for path in folder.rglob("*") if path.is_file())


def search(place: Path, names: list[str]) -> None:
    """Refuse what names the machine, its user or its directories."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    known = [socket.gethostname(), getpass.getuser(), str(Path.home()), platform.release(), str(HERE), sys.prefix, os.getcwd()]  # noqa: PTH109  # as the text in a file would be
    known += [boot.read_text().strip()] if boot.exists() else []
    marks = [re.compile(rb"(?<![\w.-])" + re.escape(one.encode())) for one in known if len(one) > 4]
    for path in (path for name in names for path in files(place / name)):
        content = path.read_bytes()
        told = [mark.pattern for mark in marks if mark.search(content)]
        if told:
            sys.exit(f"{path} tells {told}")


def pack(archive: Path, names: list[str]) -> None:
    """Pack the runs so that the same files give the same archive."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            for path in files(PLACE / name):
                tar.add(path, str(path.relative_to(PLACE)), filter=plain)


if __name__ == "__main__":
    main(sys.argv[1])
