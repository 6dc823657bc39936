"""Anchors in a git repository: annotated tags, and notes of the commit whose code a run executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from probes.errors import FileRefused, UsageError
from probes.proof.anchors.kept import AnchorNote, KeptAnchor, parsed
from probes.proof.anchors.ssh_signature import Signers
from probes.provenance.code import GitUnknown, git

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NOTES = "probes"
LARGEST = 1 << 20
GOOD = re.compile(r'^Good "git" signature for (\S+) with ', re.MULTILINE)


def make_tag(anchor: AnchorNote, repository: Path, key: Path | None = None) -> str:
    """Make an annotated tag of the commit that is checked out; returns its name.

    Args:
        anchor: what to keep.
        repository: a directory in the repository.
        key: a private key of SSH that signs the tag.

    Raises:
        UsageError: there is no repository, the run has a tag already, or the key cannot sign.
    """
    name = _tag(anchor.run_id, anchor.head)
    signing = ("-c", "gpg.format=ssh", "-c", f"user.signingKey={key.resolve()}") if key is not None else ("-c", "tag.gpgSign=false")
    try:
        said = git(repository, *signing, "tag", "-a" if key is None else "-s", "-m", anchor.text(), name, errors=True)
        signature = git(repository, "for-each-ref", "--format=%(contents:signature)", f"refs/tags/{name}")
        if key is not None and not signature.strip():  # git makes the tag all the same, and ends with 0
            git(repository, "tag", "-d", name)
            why = said.decode(errors="replace").strip().splitlines()
            raise UsageError(f'no tag was made: "{key}" cannot sign{f": {why[0]}" if why else ""}')
    except GitUnknown as error:
        raise UsageError(f"no tag was made: {error}") from error
    return name


def make_note(anchor: AnchorNote, commit: str, repository: Path) -> None:
    """Add a line to the note of the commit whose code a run executed, in `refs/notes/probes`.

    Raises:
        UsageError: the run names no commit, or the repository does not have it.
    """
    if not COMMIT.fullmatch(commit):
        raise UsageError("the run names no commit of its code, so there is none to note; `--git` makes a tag")
    try:
        git(repository, "notes", f"--ref={NOTES}", "append", "-m", anchor.text(), commit)
    except GitUnknown as error:
        raise UsageError(f"no note was made: {error}") from error


def anchors_in(run_id: str, commit: str, repository: Path, signers: Signers | None) -> tuple[KeptAnchor, ...]:
    """The anchors of a run in a repository: those of its tags, and without signers those of the note of its commit.

    Args:
        run_id: name of the run.
        commit: the commit that its manifest names; another text where it names none.
        repository: a directory in the repository.
        signers: who must have signed the tags.

    Raises:
        UsageError: there is none.
        FileRefused: a tag is not an anchor, is not of the run that its name says, or is not signed.
    """
    try:
        listed = git(repository, "for-each-ref", "--format=%(refname)", f"refs/tags/{_tag(run_id, '*')}").decode(errors="replace").split()
    except GitUnknown as error:
        raise UsageError(f"no tag can be read: {error}") from error
    found = tuple(_of_tag(ref, run_id, repository, signers) for ref in listed)
    found += tuple(_of_note(run_id, commit, repository)) if signers is None else ()
    if not found:
        notes = f", and the commit {commit[:12]} no note of it" if COMMIT.fullmatch(commit) and signers is None else ""
        raise UsageError(f'the repository of "{repository}" has no tag `{_tag(run_id, "*")}`{notes}; `probes anchor RUN --git` makes a tag')
    return found


def _of_tag(ref: str, run_id: str, repository: Path, signers: Signers | None) -> KeptAnchor:
    """The anchor of one tag, whose name has the run and the first digits of the head."""
    name = ref.removeprefix("refs/tags/")
    text = git(repository, "for-each-ref", "--format=%(objectname) %(objecttype) %(contents:subject)", ref)
    tag, kind, subject = (*text.split(b" ", 2), b"", b"", b"")[:3]
    if kind != b"tag" or len(text) > LARGEST:
        raise FileRefused("not-an-anchor", f"the tag `{name}` has no message, so it is not an anchor")
    anchor = parsed(subject.strip(), f"the tag {name}").of(run_id, f"the tag {name}")
    if _tag(run_id, anchor.head) != name:
        raise FileRefused("not-an-anchor", f"the tag `{name}` has the head {anchor.head[:16]}: it was moved or renamed")
    return anchor._replace(signer=_signer(name, tag.decode(), repository, signers)) if signers is not None else anchor


def _signer(name: str, tag: str, repository: Path, signers: Signers) -> str:
    """The signer of a tag by its object: another ref, such as `refs/probes/...`, can have the same short name."""
    words = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers.path}")
    try:
        said = git(repository, *words, "verify-tag", "--raw", tag, errors=True).decode(errors="replace")
    except GitUnknown as error:
        raise FileRefused("not-signed", f"the tag `{name}` has no valid signature: {str(error).splitlines()[-1]}") from error
    good = GOOD.search(said)
    if good is None:
        raise FileRefused("not-signed", f'the tag `{name}` has no signature by a key of "{signers.path}"')
    return good[1]


def _of_note(run_id: str, commit: str, repository: Path) -> Iterator[KeptAnchor]:
    """The anchors of a run in the note of a commit; notes of other commits and lines about other runs do not count."""
    if not COMMIT.fullmatch(commit):
        return
    try:
        text = git(repository, "notes", f"--ref={NOTES}", "show", commit)
    except GitUnknown:
        return
    for line in text[:LARGEST].splitlines():
        if line.strip():
            anchor = parsed(line, f"the note of {commit[:12]}")
            if anchor.run_id == run_id:
                yield anchor


def _tag(run_id: str, head: str) -> str:
    if not NAME.fullmatch(run_id):
        raise UsageError(f"`{run_id}` is not a name that a tag can have; anchor the run in a file")
    return f"probes/{run_id}/{head[:16]}"
