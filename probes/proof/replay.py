"""Running a recorded command again with its recorded spec, and comparing what it captures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pydantic import ValidationError

from probes.capture_file.read import SealedFile
from probes.errors import FileRefused, RunError, StorageError, UsageError
from probes.proof.comparison.difference import Difference
from probes.proof.diff import diff
from probes.provenance.code import GitUnknown, repository, with_home
from probes.provenance.packages import packages, python_version
from probes.provenance.redact import REDACTED
from probes.run_directory.file_name import ledger_files
from probes.run_directory.listing import is_run, newest_run
from probes.run_directory.manifest import CodeRecord, Manifest, PluginRecord
from probes.run_directory.subprocess_command import command as child_command

STDERR = 2


class Change(NamedTuple):
    """Something that is no longer as it was recorded.

    Attributes:
        what: its name.
        then: what was recorded.
        now: what is there.
    """

    what: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.then}, now {self.now}"


class ExpectedRoot(NamedTuple):
    """A captures root that was given, beside the one that came out.

    Attributes:
        root: what was given; empty where the replay made a file too many.
        found: what came out; empty where it made one too few.
    """

    root: str
    found: str

    @property
    def same(self) -> bool:
        """Whether they agree; a given root may be cut to its first 8 digits or more."""
        return len(self.root) >= 8 and self.found.startswith(self.root.lower())


class Replay(NamedTuple):
    """The result of a replay.

    Attributes:
        out: directory of the new run.
        changes: what was not as recorded, and was accepted.
        difference: of the recorded and the new run; None where roots were expected instead.
        expected: the roots that were given, by epoch.
    """

    out: Path
    changes: tuple[Change, ...]
    difference: Difference | None
    expected: tuple[ExpectedRoot, ...]

    @property
    def same(self) -> bool:
        """Whether the new run captured the same."""
        return self.difference.same if self.difference is not None else all(one.same for one in self.expected)


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
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise FileRefused("manifest-edited", f'"{path}" does not fit its schema: {error.errors()[0]["msg"]}') from error


def changes(manifest: Manifest, directory: Path) -> tuple[Change, ...]:
    """What is no longer as it was recorded: script, repository, plug-ins, Python, packages, device.

    Args:
        manifest: of the recorded run.
        directory: where its command would be run.
    """
    found = [*_code_changes(manifest.code, directory), *_plugin_changes(manifest.spec.plugins)]
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
    """The device of this machine; a child process asks torch for it, which this room never imports."""
    done = subprocess.run(child_command("probes.provenance.environment"), capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _code_changes(code: CodeRecord, directory: Path) -> list[Change]:
    found = []
    file = script_file(code.script or "", directory)
    now = sha256(file.read_bytes()).hexdigest() if file else "not there"
    if now != code.sha256:
        found.append(Change(f"script {code.script}", (code.sha256 or "unknown")[:16], now[:16]))
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


def _plugin_changes(plugins: Iterable[PluginRecord]) -> Iterator[Change]:
    for plugin in plugins:
        file = Path(with_home(plugin.file.name))
        now = sha256(file.read_bytes()).hexdigest() if file.is_file() else "not there"
        if now != plugin.file.sha256:
            yield Change(f"plug-in {plugin.kind}", plugin.file.sha256[:16], now[:16])


def script_file(script: str, directory: Path) -> Path | None:
    """The file of a recorded script or `-m module`, or None where it is not below the directory."""
    if script.startswith("-m "):
        place = directory.joinpath(*script.removeprefix("-m ").split("."))
        candidates = [place.with_suffix(".py"), place / "__main__.py"]
    else:
        candidates = [directory / with_home(script)]
    return next((path for path in candidates if path.is_file()), None)


def command(manifest: Manifest, spec: Path, out: Path, directory: Path) -> list[str]:
    """The command that runs a recorded run again; it may import the plug-ins that the recorded one imported.

    Args:
        manifest: of the recorded run.
        spec: a file with its spec.
        out: directory of the new run.
        directory: where the command will be run.

    Raises:
        UsageError: what was recorded is not enough to run it again; the message says what is missing.
    """
    code = manifest.code
    by_hand = "run it by hand, then: probes diff"
    if code.script is None or script_file(code.script, directory) is None:
        raise UsageError(f'the script "{code.script or "of a notebook"}" is not in "{directory}"; go to where it is, or give --directory')
    if not code.automatic:
        raise UsageError(f'"{code.script}" attaches its probes itself; {by_hand}')
    if any(REDACTED in argument for argument in code.argv):
        raise UsageError(f"a secret argument was not recorded: {' '.join(code.argv)}; {by_hand}")
    if manifest.environment.world > 1:
        raise UsageError(f"the run had {manifest.environment.world} processes; {by_hand}")
    script = code.script.split(" ") if code.script.startswith("-m ") else [with_home(code.script)]
    words = [*script, *(with_home(argument) for argument in code.argv)]
    allowed = [word for plugin in manifest.spec.plugins for word in ("--allow-plugin", plugin.kind)]
    return [sys.executable, "-m", "probes", "run", "--out", str(out.resolve()), *allowed, str(spec.resolve()), *words]


def _spec(run: Path, manifest: Manifest, room: Path) -> Path:
    """The recorded spec as one file of its name: the bytes that were read where they say it all, else the resolved spec."""
    written = room / f"{manifest.spec.name}.yaml"  # without a key `name` a spec is called as its file
    if written.parent != room:
        raise UsageError(f'"{run}" names its spec `{manifest.spec.name}`, which is a path and not a name')
    if len(manifest.spec.files) <= 1 and not manifest.spec.overrides:
        written.write_bytes((run / "spec.yaml").read_bytes())
        return written
    for path in sorted(run.glob("epoch-*.h5")):
        text = SealedFile(path).root.content("resolved")
        if sha256(text).hexdigest() == manifest.spec.resolved_sha256:
            written.write_bytes(text)
            return written
    raise UsageError(f'"{run}" has no sealed file with the resolved spec, which was made of more than one file')


def replay(
    path: str | Path,
    out: str | Path,
    *,
    directory: str | Path | None = None,
    anyway: bool = False,
    expect: Sequence[str] = (),
    bitwise: bool = False,
) -> Replay:
    """Run the recorded command with the recorded spec into a new directory, then compare.

    Args:
        path: the recorded run; with `expect`, its run.json and spec.yaml are enough.
        out: directory of the new run; absent or empty.
        directory: where to run it; by default where it was run, or here where the script is not there.
        anyway: go on although something is no longer as it was recorded.
        expect: captures roots to compare with, by epoch, instead of the recorded captures.
        bitwise: compare bit for bit, whatever tolerances the spec names.

    Returns:
        What came out; nothing is printed but by the script, on stderr.

    Raises:
        RunError: something is no longer as it was recorded; the message lists it. Or the command failed.
        UsageError: what was recorded is not enough to run it again.
    """
    run = Path(path)
    run = newest_run(run) if run.is_dir() and not is_run(run) else run
    manifest = recorded(run)
    where = Path(directory) if directory is not None else _directory(manifest.code)
    changed = changes(manifest, where)
    if changed and not anyway:
        listed = "\n".join(f"  {change}" for change in changed)
        raise RunError(f"not everything is as it was recorded; give --anyway to go on:\n{listed}")
    with TemporaryDirectory() as room:
        words = command(manifest, _spec(run, manifest, Path(room)), Path(out), where)
        done = subprocess.run(words, cwd=where, stdout=STDERR, check=False)
    if done.returncode:
        raise RunError(f"the replayed command ended with {done.returncode}: {' '.join(words)}")
    if expect:
        return Replay(Path(out), changed, None, _against(expect, Path(out)))
    return Replay(Path(out), changed, diff(run, out, bitwise=bitwise), ())


def _directory(code: CodeRecord) -> Path:
    """Where a command was run, or here where its script is not there any more."""
    then = Path(with_home(code.directory))
    return then if then.is_dir() and script_file(code.script or "", then) else Path.cwd()


def _against(expect: Sequence[str], out: Path) -> tuple[ExpectedRoot, ...]:
    lines = [json.loads(line) for ledger in ledger_files(out) for line in ledger.read_bytes().splitlines()]
    roots = [str(line["captures_root"]) for line in lines]
    count = max(len(expect), len(roots))
    padded = [*expect, *[""] * (count - len(expect))]
    return tuple(ExpectedRoot(root, found) for root, found in zip(padded, [*roots, *[""] * (count - len(roots))], strict=True))
