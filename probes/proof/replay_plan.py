"""The plan of a replay of a recorded run, made without executing any of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from probes.capture_file.read import SealedFile
from probes.errors import FileRefused, StorageError, UsageError
from probes.plain_file import read_plain, regular
from probes.processes.subprocess_command import command as child_command
from probes.proof.replay_files import CODE, code_files, named_files
from probes.proof.replay_modules import imported_below, in_place_of_others
from probes.proof.verify import verify
from probes.provenance.code import GitUnknown, repository, with_home
from probes.provenance.packages import packages, python_version
from probes.provenance.redact import REDACTED
from probes.run_directory.launch.launch_file import launches
from probes.run_directory.listing import Directory
from probes.run_directory.manifest import CodeRecord, Manifest, PluginRecord

LAUNCHED_BY = {"slurm": "srun --ntasks {}", "mpirun": "mpirun -n {}"}
TORCHRUN = "torchrun --standalone --nproc-per-node {} --no-python"
NAME = re.compile(r"[\w][\w .-]{0,200}")


class Change(NamedTuple):
    """A difference from the recorded state.

    Attributes:
        what: its name.
        then: what was recorded.
        now: what was found instead.
    """

    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.then}, now {self.now}"


class ReplayPlan(NamedTuple):
    """The commands, files and plug-ins of a replay.

    Attributes:
        manifest: of the recorded run.
        directory: where the command would be run.
        script: the file of the script.
        script_sha256: SHA-256 of that file now.
        recorded_sha256: SHA-256 of the script when it was recorded.
        words: the command, with the name of the spec instead of a path to it.
        plugins: the plug-ins that it would be allowed to import.
        functions: the files of the spec whose functions it would be allowed to run, with their recorded digests.
        anchored_by: head of the ledger that the recorded run has; empty if only its manifest and spec are there.
        imported: SHA-256 of the files of modules that were imported while the recorded run went on, by name.
        modules: files below the directory that the script imports, and that the recorded run did; with what is not as it was recorded.
        in_place: names in the directory that Python imports instead of its own modules.
        files: what the spec reads besides code: tensors of edits, and runs to compare with.
    """

    manifest: Manifest
    directory: Path
    script: Path
    script_sha256: str
    recorded_sha256: str
    words: tuple[str, ...]
    plugins: tuple[str, ...]
    functions: tuple[str, ...]
    anchored_by: str
    imported: Mapping[str, str]
    modules: tuple[ReplayedModule, ...]
    in_place: tuple[str, ...]
    files: tuple[str, ...]


class ReplayedModule(NamedTuple):
    """A file below the directory that a replay would import.

    Attributes:
        name: relative to the directory.
        sha256: of the file now.
        state: `as recorded`, `CHANGED`, `not recorded`, or `gone`.
    """

    name: str
    sha256: str
    state: str


def plan_replay(run: Path, out: Path, directory: Path | None, roots_only: bool = False, start: Sequence[str] = ()) -> ReplayPlan:
    """Plan a replay; no program is run, and nothing is written.

    Args:
        run: the recorded run.
        out: directory of the new run.
        directory: where to run it; by default where it was run, or here where the script is not there.
        roots_only: whether `run.json` and `spec.yaml` are enough, because captures roots are expected.
        start: the words of a command that starts the ranks, if it is not torchrun, nor the script.

    Raises:
        FileRefused: the recorded run does not verify.
        StorageError: the run has no manifest.
        UsageError: what was recorded is not enough to run it again.
    """
    manifest = recorded(run)
    head = _verified(run, manifest, roots_only)
    where = directory if directory is not None else recorded_directory(manifest.code)
    words = command(manifest, Path(f"{manifest.spec.name}.yaml"), out, where, recorded_launcher(run), start)
    script = script_file(manifest.code, where)
    assert script is not None  # the check in `command` has found it
    return ReplayPlan(
        manifest=manifest,
        directory=where,
        script=script,
        script_sha256=_digest_now(script),
        recorded_sha256=manifest.code.sha256 or "",
        words=tuple(words),
        plugins=tuple(f"{plugin.kind} ({plugin.distribution} {plugin.version})" for plugin in manifest.spec.plugins),
        functions=tuple(f"{one.name} (SHA-256 {one.sha256[:12]})" for one in code_files(manifest)),
        anchored_by=head,
        imported=(imported := _imported(run) if head else {}),
        modules=tuple(_modules(manifest.code, script, where, imported)),
        in_place=in_place_of_others(where),
        files=tuple(one for one in named_files(run, manifest) if not one.endswith(CODE)),
    )


def _modules(code: CodeRecord, script: Path, directory: Path, imported: Mapping[str, str]) -> Iterator[ReplayedModule]:
    """The modules below the directory that were recorded, and those that the script imports now, by name."""
    then = {**{one.name: one.sha256 for one in code.modules or ()}, **imported}
    recorded_files = {name: directory / name for name in then if not Path(with_home(name)).is_absolute() and directory / name != script}
    now = {str(path.relative_to(directory)): path for path in imported_below(script, directory)}
    for name, path in sorted({**recorded_files, **now}.items()):
        digest = _digest_now(path)
        state = "not recorded" if name not in then else "as recorded" if digest == then[name] else "CHANGED"
        yield ReplayedModule(name, digest, "gone" if digest == "not there" else state)


def _imported(run: Path) -> dict[str, str]:
    """The imports that the last file of a verified run adds to the manifest."""
    files = Directory(run)
    closing = files.closing(files.current[-1].name) if files.current else {}
    found = closing.get("imported") if isinstance(closing, dict) else None
    return {name: str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _verified(run: Path, manifest: Manifest, roots_only: bool) -> str:
    """The head of a run that verifies; for a manifest and a spec without a ledger, check that they fit, and return an empty text."""
    if roots_only and not any(run.glob("ledger*.jsonl")):
        if sha256(read_plain(run / "spec.yaml")).hexdigest() != manifest.spec.sha256:
            raise FileRefused("spec-edited", f'"{run / "spec.yaml"}" is not the spec that "{run / "run.json"}" names')
        return ""
    found = verify(run)
    wrong = next((finding for finding in found.findings if not finding.note), None)
    if wrong is not None:
        raise FileRefused(wrong.code, f'"{run}" does not verify, so it is not run again: {wrong.file}: {wrong.message}')
    return found.head


def recorded(run: Path) -> Manifest:
    """The manifest of a run.

    Raises:
        StorageError: the run has no manifest.
        FileRefused: it does not fit its schema.
    """
    path = run / "run.json"
    if not path.is_file():
        raise StorageError(f'"{run}" holds no run.json, so there is no command to run again')
    try:
        return Manifest.model_validate_json(read_plain(path))
    except ValidationError as error:
        raise FileRefused("manifest-edited", f'"{path}" does not fit its schema: {error.errors()[0]["msg"]}') from error


def changes(manifest: Manifest, directory: Path, imported: Mapping[str, str] | None = None) -> tuple[Change, ...]:
    """The differences from the recorded state: script, repository, plug-ins, Python, packages, device.

    Args:
        manifest: of the recorded run.
        directory: where its command would be run.
        imported: SHA-256 of the files of modules that were imported late, by name.
    """
    found = [*_code_changes(manifest.code, directory, imported or {}), *_plugin_changes(manifest.spec.plugins)]
    if manifest.environment.python != python_version():
        found.append(Change("Python", manifest.environment.python, python_version()))
    now = packages()
    for name in sorted({*manifest.packages, *now}):
        then, here = manifest.packages.get(name, "not installed"), now.get(name, "not installed")
        if then != here:
            found.append(Change(f"package {name}", then, here))
    if manifest.environment.device.startswith("cuda"):
        device = _current_device()
        if device not in manifest.environment.device:
            found.append(Change("device", manifest.environment.device, device))
    return tuple(found)


def _current_device() -> str:
    """The device of this machine; a child process asks torch for it, because this package never imports torch."""
    done = subprocess.run(child_command("probes.provenance.environment"), capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _code_changes(code: CodeRecord, directory: Path, imported: Mapping[str, str]) -> list[Change]:
    found = []
    file = script_file(code, directory)
    now = _digest_now(file)
    if now != code.sha256:
        found.append(Change(f"script {code.script}", (code.sha256 or "unknown")[:16], now[:16]))
    for name, then in {**imported, **{module.name: module.sha256 for module in code.modules or ()}}.items():
        place = Path(with_home(name))
        place = place if place.is_absolute() else directory / place
        now = _digest_now(place)
        if now != then and place != file:
            found.append(Change(f"module {name}", then[:16], now[:16]))
    if code.git is None:
        return found
    try:
        git, _ = repository(file.parent if file else directory)
    except GitUnknown as error:
        return [*found, Change("commit", code.git.commit[:16], f"unknown ({error})")]
    if git.commit != code.git.commit:
        found.append(Change("commit", code.git.commit[:16], git.commit[:16]))
    then, here = (state.diff.sha256[:16] if state.diff else "none" for state in (code.git, git))
    if then != here:
        found.append(Change("uncommitted changes", then, here))
    return found


def _digest_now(path: Path | None) -> str:
    """SHA-256 of a file in a manifest, or the reason why there is none."""
    try:
        if path is None or not path.is_file():
            return "not there"
        with os.fdopen(regular(path, follow=True), "rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError, StorageError, FileRefused):
        return "not readable"


def _plugin_changes(plugins: Iterable[PluginRecord]) -> Iterator[Change]:
    for plugin in plugins:
        now = _digest_now(Path(with_home(plugin.file.name)))
        if now != plugin.file.sha256:
            yield Change(f"plug-in {plugin.kind}", plugin.file.sha256[:16], now[:16])


def _path_of_script(code: CodeRecord, directory: Path) -> str:
    """The recorded path of the script; of an absolute one in the recorded directory, the part that leads there from another directory."""
    script, then = with_home(code.script or ""), Path(with_home(code.directory))
    path = Path(script)
    moved = path.is_absolute() and path.is_relative_to(then) and not path.is_relative_to(directory)
    return str(path.relative_to(then)) if moved else script


def script_file(code: CodeRecord, directory: Path) -> Path | None:
    """The file of a recorded script or `-m module`, or None if it is not below the directory, links resolved."""
    script = code.script or ""
    if script.startswith("-m "):
        parts = script.removeprefix("-m ").split(".")
        place = directory.joinpath(*parts)
        candidates = [place.with_suffix(".py"), place / "__main__.py"] if all(part.isidentifier() for part in parts) else []
    else:
        place = directory / _path_of_script(code, directory)
        candidates = [place, place / "__main__.py"]
    below = directory.resolve()
    with suppress(OSError):  # a name that no file can have
        return next((path for path in candidates if path.is_file() and path.resolve().is_relative_to(below)), None)
    return None


def command(manifest: Manifest, spec: Path, out: Path, directory: Path, launcher: str = "", start: Sequence[str] = ()) -> list[str]:
    """The command that runs a recorded run again; it may import the plug-ins that the recorded one imported.

    Args:
        manifest: of the recorded run.
        spec: a file with its spec, absolute if it is to be run.
        out: directory of the new run.
        directory: where the command will be run.
        launcher: what started the processes of the recorded run, if they were several; `torchrun` starts as many here, and with
            `script` the program starts them itself.
        start: the words of a command that starts them instead, such as `srun`; it sets the environment of each.

    Raises:
        UsageError: what was recorded is not enough to run it again; the message says what is missing.
    """
    code = manifest.code
    by_hand = "run it by hand, then: probes diff"
    if code.script is None or script_file(code, directory) is None:
        name = code.script or "of a notebook"
        raise UsageError(f'the script "{name}" is not below "{directory}"; change to its directory, or give --directory')
    if not code.automatic:
        raise UsageError(f'"{code.script}" attaches its probes itself; {by_hand}')
    if any(REDACTED in argument for argument in code.argv):
        raise UsageError(f"a secret argument was not recorded: {' '.join(code.argv)}; {by_hand}")
    world = manifest.environment.world
    starts = _starts(world, launcher, start)
    script = code.script.split(" ") if code.script.startswith("-m ") else [_path_of_script(code, directory)]
    words = [*script, *(with_home(argument) for argument in code.argv)]
    allowed = [word for plugin in manifest.spec.plugins for word in ("--allow-plugin", plugin.kind)]
    allowed += [word for one in code_files(manifest) for word in ("--allow-code", one.name)]
    return [*starts, "-m", "probes", "run", "--out", str(out.resolve()), *allowed, str(spec), *words]


def _starts(world: int, launcher: str, start: Sequence[str]) -> list[str]:
    """The words before `-m probes run`: a Python, and what starts the ranks of a launch."""
    if start and (world == 1 or launcher == "script"):
        who = "the run had one process" if world == 1 else "the script of this run starts its ranks itself"
        raise UsageError(f"{who}, so `--launcher` has no effect; leave it out")
    if start:
        return [*start, sys.executable]
    if world > 1 and launcher not in ("torchrun", "script"):
        own = LAUNCHED_BY.get(launcher, "mpirun -n {}").format(world)
        raise UsageError(
            f"the run had {world} processes, which {f'`{launcher}`' if launcher else 'another launcher than torchrun'} started; give the "
            f'command that starts as many, such as --launcher "{own}", or --launcher "{TORCHRUN.format(world)}" '
            "for a script that takes its rank from RANK and WORLD_SIZE"
        )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    return [sys.executable, *(torchrun if world > 1 and launcher == "torchrun" else [])]


def write_spec(run: Path, manifest: Manifest, room: Path) -> Path:
    """The recorded spec as one file: the original bytes if they are complete, else the resolved spec."""
    if not NAME.fullmatch(manifest.spec.name):
        raise UsageError(f'"{run}" names its spec `{manifest.spec.name}`, which is not the name of a file')
    written = room / f"{manifest.spec.name}.yaml"  # a spec without the key `name` gets the name of its file
    if len(manifest.spec.files) - len(code_files(manifest)) <= 1 and not manifest.spec.overrides:
        written.write_bytes(read_plain(run / "spec.yaml"))
        return written
    for path in sorted(run.glob("epoch-*.h5")):
        text = SealedFile(path).root.content("resolved")
        if sha256(text).hexdigest() == manifest.spec.resolved_sha256:
            written.write_bytes(text)
            return written
    raise UsageError(f'"{run}" has no sealed file with the resolved spec, which was made of more than one file')


def recorded_launcher(run: Path) -> str:
    """The launcher of a recorded launch; empty if it has no name, and for a single process."""
    return next((one.launcher for one in launches(run).values()), "") if run.is_dir() else ""


def recorded_directory(code: CodeRecord) -> Path:
    """The recorded working directory, or the current one if the recorded script no longer exists there."""
    then = Path(with_home(code.directory))
    try:
        there = then.is_dir()
    except OSError:  # a name that no file can have
        there = False
    return then if there and script_file(code, then) else Path.cwd()
