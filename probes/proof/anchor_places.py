"""Anchors that are kept outside of the run directory: in a file, or in an annotated tag of a git repository."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from probes.digest import canonical
from probes.errors import FileRefused, UsageError
from probes.plain_file import plain_object, read_plain
from probes.proof.anchor import checked
from probes.proof.finding import Verdict
from probes.proof.in_toto import PREDICATE
from probes.provenance.code import GitUnknown, git

FORMAT = "anchor.v1"
LARGEST = 1 << 20
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
GIT = "git"


class AnchorNote(NamedTuple):
    """What is kept of a run.

    Attributes:
        run_id: name of the run.
        head: head of the run.
        files: how many files the ledgers list.
    """

    run_id: str
    head: str
    files: int

    def text(self) -> str:
        """One line of canonical JSON."""
        return canonical({"format": FORMAT, **self._asdict()}).decode()


def note(verdict: Verdict) -> AnchorNote:
    """What to keep of a run that verifies.

    Raises:
        UsageError: the run does not verify, or has no ledger.
    """
    if not verdict.ok:
        raise UsageError(f'"{verdict.path}" does not verify, so it is not anchored; `probes verify` lists what is wrong')
    if not verdict.head or verdict.runs != 1:
        raise UsageError(f'"{verdict.path}" is not one run with a ledger, so there is nothing to anchor')
    return AnchorNote(verdict.run_id, verdict.head, len(verdict.files))


def keep_in_file(anchor: AnchorNote, path: Path, run: Path) -> None:
    """Write an anchor into a new file outside of the run.

    Raises:
        UsageError: the file is in the run directory, or there is one already.
    """
    if path.resolve().is_relative_to(run.resolve()):
        raise UsageError(f'"{path}" is in the run directory, where who can change the run can change it too; name another place')
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(anchor.text() + "\n")
    except FileExistsError:
        raise UsageError(f'"{path}" exists already; an anchor is never replaced') from None


def keep_in_git(anchor: AnchorNote, repository: Path) -> str:
    """Make an annotated tag of the commit that is checked out; returns its name.

    Raises:
        UsageError: there is no repository, or the run has a tag already.
    """
    name = _tag(anchor.run_id, anchor.head)
    try:
        git(repository, "-c", "tag.gpgSign=false", "tag", "-a", "-m", anchor.text(), name)
    except GitUnknown as error:
        raise UsageError(f"no tag was made: {error}") from error
    return name


def found(place: str, run: Path, repository: Path) -> tuple[str, ...]:
    """The anchors that an option names: hashes as they are, `git`, or the name of a file.

    Args:
        place: what was given.
        run: the run directory.
        repository: the directory whose repository has the tags; it may not be in the run directory.

    Raises:
        UsageError: there is no anchor in that place.
        FileRefused: the file is not an anchor.
    """
    if place == GIT:
        if repository.resolve().is_relative_to(run.resolve()):
            raise UsageError(f'git is never run in a run directory; go out of "{run}"')
        return _in_git(_run_id(run), repository)
    path = Path(place)
    return (_head(read_plain(path, LARGEST), str(path)),) if path.is_file() else (place,)


def _run_id(run: Path) -> str:
    try:
        return str(plain_object(read_plain(run / "run.json")).get("run_id"))
    except ValueError as error:
        raise UsageError(f'"{run}" has no manifest that names the run: {error}') from error


def _in_git(run_id: str, repository: Path) -> tuple[str, ...]:
    try:
        text = git(repository, "for-each-ref", "--format=%(contents:subject)", f"refs/tags/{_tag(run_id, '*')}").decode(errors="replace")
    except GitUnknown as error:
        raise UsageError(f"no tag can be read: {error}") from error
    heads = tuple(_head(line.encode(), f"a tag of `{run_id}`") for line in text.splitlines() if line)
    if not heads:
        raise UsageError(f'the repository of "{repository}" has no tag `{_tag(run_id, "*")}`; `probes anchor RUN --git` makes one')
    return heads


def _tag(run_id: str, head: str) -> str:
    if not NAME.fullmatch(run_id):
        raise UsageError(f"`{run_id}` is not a name that a tag can have; anchor the run in a file")
    return f"probes/{run_id}/{head[:16]}"


def _head(text: bytes, place: str) -> str:
    try:
        data: dict[str, Any] = plain_object(text)
        stated = data.get("predicateType") == PREDICATE  # an in-toto statement, whose signature another program has checked
        (head,) = checked(str(data["predicate"]["ledger_head"] if stated else data["head"]))
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise FileRefused("not-an-anchor", f"{json.dumps(place)} is not an anchor as `probes anchor` writes it, nor a statement") from error
    if not stated and data.get("format") != FORMAT:
        raise FileRefused("not-an-anchor", f"{json.dumps(place)} has the format `{data.get('format')}`; this release reads `{FORMAT}`")
    return head
