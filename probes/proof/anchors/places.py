"""The places for anchors outside of the run directory: writing and finding them."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

from probes.errors import UsageError
from probes.plain_file import plain_object, read_plain
from probes.printable import shortened
from probes.proof.anchors.git_refs import anchors_in
from probes.proof.anchors.kept import AnchorNote, KeptAnchor, parsed
from probes.proof.anchors.ssh_signature import Signers, sign, signature_beside
from probes.proof.anchors.tracker import anchor_in, is_tracker
from probes.proof.finding import Verdict
from probes.proof.in_toto import statement

LARGEST = 1 << 24  # a statement contains every file name
GIT = "git"
HASH = re.compile(r"[0-9a-fA-F]{32,64}")


def keep_in_file(anchor: AnchorNote, path: Path, run: Path) -> None:
    """Write an anchor into a new file outside of the run.

    Raises:
        UsageError: the file is in the run directory, or there is one already.
    """
    _write(path, run, anchor.text() + "\n")


def keep_signed(verdict: Verdict, path: Path, run: Path, key: Path) -> Path:
    """Write an in-toto statement into a new file outside of the run, and its signature next to it; returns where that is.

    Args:
        verdict: of a verification that took the SHA-256 of the files.
        path: the file.
        run: the run directory.
        key: a private key of SSH, or the public one of a key that an agent holds.

    Raises:
        UsageError: the file is in the run directory, there is one already, or the key cannot sign.
    """
    _write(path, run, json.dumps(statement(verdict), indent=2) + "\n")
    try:
        return sign(path, key)
    except Exception:  # whatever fails, no unsigned statement stays
        path.unlink()
        raise


def _write(path: Path, run: Path, text: str) -> None:
    if path.resolve().is_relative_to(run.resolve()):
        raise UsageError(f'"{path}" is in the run directory, and anyone who can change the run can change it too; name another place')
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f'"{path}" exists already; an anchor is never replaced') from None


def found(place: str, run: Path, repository: Path, signers: Signers | None = None) -> tuple[KeptAnchor, ...]:
    """The anchors that an option names: a hash as it is, `git`, a run of a tracker, or the name of a file.

    Args:
        place: what was given.
        run: the run directory.
        repository: the directory whose repository has the tags and notes; it may not be in the run directory.
        signers: who must have signed the anchors.

    Raises:
        UsageError: there is no anchor in that place, or what is there cannot be signed.
        FileRefused: the file is not an anchor, is of another run, or is not signed.
    """
    if place == GIT:
        refuse_inside(run, repository)
        manifest = _manifest(run)
        if not manifest:
            raise UsageError(f'"{run}" has no manifest that names the run')
        return anchors_in(str(manifest.get("run_id")), _commit(manifest), repository, signers)
    if is_tracker(place) or HASH.fullmatch(place.strip()):  # an untrusted directory may contain a file of any name
        if signers is not None:
            raise UsageError(f"`--signers` is for anchors in files and tags; `{place}` has no signature")
        return (anchor_in(place).of(str(_manifest(run).get("run_id", "")), place),) if is_tracker(place) else (KeptAnchor(place),)
    path = _file(place)
    if path.resolve().is_relative_to(run.resolve()):
        raise UsageError(
            f'"{path}" is in the run directory, and anyone who can change the run can change it too; give an anchor that you keep'
        )
    return (_of_file(path, signers).of(str(_manifest(run).get("run_id", "")), place),)


def _file(place: str) -> Path:
    """The file that an option names, as it names nothing else.

    Raises:
        UsageError: there is no such file.
    """
    try:
        mode = Path(place).stat().st_mode
    except (OSError, ValueError) as error:  # not there, or a text that is too long for a name
        why = getattr(error, "strerror", None) or "it is not the name of a file"
    else:
        if stat.S_ISREG(mode):
            return Path(place)
        why = "it is not a regular file"
    raise UsageError(
        f"`{shortened(place, 200)}` is not an anchor: {why}, and a ledger head has 64 hexadecimal digits, at least 32 of which are needed"
    )


def _of_file(path: Path, signers: Signers | None) -> KeptAnchor:
    text = read_plain(path, LARGEST)
    signer = signers.signer(text, signature_beside(path), str(path)) if signers is not None else ""
    return parsed(text, str(path))._replace(signer=signer)


def refuse_inside(run: Path, repository: Path) -> None:
    """Refuse to run git in a run directory, which may have a repository of its own.

    Raises:
        UsageError: the repository is in the run directory.
    """
    if repository.resolve().is_relative_to(run.resolve()):
        raise UsageError(f'git is never run in a run directory; leave "{run}"')


def code_commit(run: Path) -> str:
    """The commit of the code that a run executed; an empty text if its manifest names none."""
    return _commit(_manifest(run))


def _commit(manifest: dict[str, Any]) -> str:
    code = manifest.get("code")
    state = code.get("git") if isinstance(code, dict) else None
    return str(state.get("commit")) if isinstance(state, dict) else ""


def _manifest(run: Path) -> dict[str, Any]:
    """The manifest of a run; empty if it cannot be read, which the verification reports."""
    try:
        return plain_object(read_plain(run / "run.json")) if (run / "run.json").is_file() else {}
    except ValueError:
        return {}
