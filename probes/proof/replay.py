"""Run a recorded command again with its recorded spec, and compare the captures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from probes.errors import RunError, UsageError
from probes.optional_package import require_torch
from probes.proof.anchor import DIGITS
from probes.proof.comparison.difference import Difference
from probes.proof.diff import diff
from probes.proof.replay_files import lay_files
from probes.proof.replay_plan import Change, ReplayPlan, changes, command, plan_replay, recorded_launcher, write_spec
from probes.run_directory.launch.launcher import without_launch
from probes.run_directory.ledger_lines import read_ledgers
from probes.run_directory.search import meant_run

STDERR = 2
FEWEST_DIGITS = 8  # of an expected root


class ExpectedRoot(NamedTuple):
    """An expected captures root and the new one.

    Attributes:
        root: what was given; empty if the replay made a file too many.
        found: what came out; empty if it made one too few.
    """

    root: str
    found: str

    @property
    def same(self) -> bool:
        """Whether they agree; a given root may be cut to its first 8 digits or more."""
        return len(self.root) >= FEWEST_DIGITS and self.found.startswith(self.root.lower())


class Replay(NamedTuple):
    """The result of a replay.

    Attributes:
        out: directory of the new run.
        changes: what was not as recorded, and was accepted.
        difference: of the recorded and the new run; None if roots were expected instead.
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


def replay(
    path: str | Path,
    out: str | Path,
    *,
    directory: str | Path | None = None,
    anyway: bool = False,
    expect: Sequence[str] = (),
    bitwise: bool = False,
    launcher: Sequence[str] = (),
    agreed: Callable[[ReplayPlan], bool] = lambda plan: True,
) -> Replay:
    """Run the recorded command with the recorded spec into a new directory, then compare.

    Args:
        path: the recorded run; with `expect`, its run.json and spec.yaml are enough.
        out: directory of the new run; absent or empty.
        directory: where to run it; by default where it was run, or here where the script is not there.
        anyway: continue although something is no longer as it was recorded.
        expect: captures roots to compare with, by epoch, instead of the recorded captures.
        bitwise: compare bit for bit, whatever tolerances the spec names.
        launcher: the words of a command that starts the ranks of a launch, such as `["srun", "--ntasks", "4"]`, if it was not torchrun,
            nor the script.
        agreed: gets what would be executed, before any program is run in its directory; the replay ends where it returns false.

    Returns:
        What came out; nothing is printed but by the script, on stderr.

    Raises:
        FileRefused: the recorded run does not verify.
        RunError: something is no longer as it was recorded; the message lists it. Or the command failed.
        UsageError: what was recorded is not enough to run it again, or an expected root is not one.
        MissingExtra: torch is not installed.
    """
    require_torch("`probes replay`")
    for root in expect:
        if not (FEWEST_DIGITS <= len(root) <= 64 and DIGITS.issuperset(root.lower())):
            raise UsageError(f"`{root}` is not a captures root of 64 hexadecimal digits, or at least its first {FEWEST_DIGITS}")
    run = meant_run(path)
    plan = plan_replay(run, Path(out), Path(directory) if directory is not None else None, roots_only=bool(expect), start=launcher)
    if not agreed(plan):
        raise UsageError("nothing was run")
    changed = changes(plan.manifest, plan.directory, plan.imported)
    if changed and not anyway:
        listed = "\n".join(f"  {change}" for change in changed)
        raise RunError(f"not everything is as it was recorded; give --anyway to continue:\n{listed}")
    with TemporaryDirectory() as room:
        folder = lay_files(run, plan.manifest, plan.directory, Path(room))
        spec = write_spec(run, plan.manifest, folder)
        words = command(plan.manifest, spec.resolve(), Path(out), plan.directory, recorded_launcher(run), launcher)
        done = subprocess.run(words, cwd=plan.directory, env=without_launch(os.environ), stdout=STDERR, check=False)
    if done.returncode:
        raise RunError(f"the replayed command ended with {done.returncode}: {' '.join(words)}")
    if expect:
        return Replay(Path(out), changed, None, _against(expect, Path(out)))
    return Replay(Path(out), changed, diff(run, out, bitwise=bitwise), ())


def _against(expect: Sequence[str], out: Path) -> tuple[ExpectedRoot, ...]:
    roots = [entry.captures_root for ledger in read_ledgers(out) for entry in ledger.entries]
    count = max(len(expect), len(roots))
    padded = [*expect, *[""] * (count - len(expect))]
    return tuple(ExpectedRoot(root, found) for root, found in zip(padded, [*roots, *[""] * (count - len(roots))], strict=True))
