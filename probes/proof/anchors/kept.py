"""The format of an anchor."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from probes.digest import canonical
from probes.errors import FileRefused, RunError, UsageError
from probes.plain_file import plain_object
from probes.proof.anchor import checked
from probes.proof.finding import Verdict
from probes.proof.in_toto import PREDICATE

FORMAT = "anchor.v1"


class AnchorNote(NamedTuple):
    """An anchor: the facts on a run that are kept elsewhere.

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


class KeptAnchor(NamedTuple):
    """An anchor that was read from some place.

    Attributes:
        head: the head, or at least its first 32 digits.
        run_id: the run that it is of; empty if the place does not say.
        signer: who signed it, if that was checked.
    """

    head: str
    run_id: str = ""
    signer: str = ""

    def of(self, run_id: str, place: str) -> KeptAnchor:
        """The same anchor, if it is of the given run.

        Raises:
            FileRefused: it is of another run.
        """
        if self.run_id and run_id and self.run_id != run_id:
            raise FileRefused("not-an-anchor", f"{json.dumps(place)} is an anchor of the run `{self.run_id}`, not of `{run_id}`")
        return self


def note(verdict: Verdict) -> AnchorNote:
    """The anchor of a run that verifies.

    Raises:
        RunError: the run does not verify.
        UsageError: it has no ledger.
    """
    if not verdict.ok:
        raise RunError(f'"{verdict.path}" does not verify, so it is not anchored; `probes verify` lists what is wrong')
    if not verdict.head or verdict.runs != 1:
        raise UsageError(f'"{verdict.path}" is not one run with a ledger, so there is nothing to anchor')
    return AnchorNote(verdict.run_id, verdict.head, len(verdict.files))


def parsed(text: bytes, place: str) -> KeptAnchor:
    """Read the anchor in a text: an anchor as `probes anchor` writes it, or an in-toto statement.

    Raises:
        FileRefused: the text is neither.
    """
    try:
        data: dict[str, Any] = plain_object(text)
        stated = data.get("predicateType") == PREDICATE
        said = data["predicate"] if stated else data
        head, run_id = said["ledger_head" if stated else "head"], said["run_id"]
        if not (isinstance(head, str) and isinstance(run_id, str)):
            raise TypeError
        (digits,) = checked(head)
    except (ValueError, KeyError, TypeError, UsageError) as error:
        raise FileRefused("not-an-anchor", f"{json.dumps(place)} is not an anchor as `probes anchor` writes it, nor a statement") from error
    if not stated and data.get("format") != FORMAT:
        raise FileRefused("not-an-anchor", f"{json.dumps(place)} has the format `{data.get('format')}`; this release reads `{FORMAT}`")
    return KeptAnchor(digits, run_id)
