"""The lines of the ledgers of a run that an anchor covers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from probes.errors import UsageError
from probes.printable import counted
from probes.proof.finding import Finding
from probes.run_directory.ledger import current, is_whole
from probes.run_directory.ledger_lines import LedgerContents, LedgerLine, run_head

GROWN = ("ledger-grown", "anchor-resumed")
FEWEST_DIGITS = 32  # 8 digits can be forged within seconds
DIGITS = frozenset("0123456789abcdef")


class AnchorCheck(NamedTuple):
    """Anchors, compared with the ledgers of a run.

    Attributes:
        findings: what is wrong or worth knowing.
        lines: how many lines of each ledger the anchors cover.
        whole: whether every anchor was found and every line is covered, except lines that were added later.
    """

    findings: tuple[Finding, ...]
    lines: Mapping[str, int]
    whole: bool

    def covers(self, ledgers: Sequence[LedgerContents], file: str) -> bool:
        """Whether the line of a file is among those that the anchors cover."""
        return any(entry.file == file for entry in covered(ledgers, self.lines))


def checked(anchor: str | Sequence[str] | None) -> tuple[str, ...]:
    """Anchors as they are compared.

    Raises:
        UsageError: one has fewer than 32 digits, or is not hexadecimal.
    """
    given = [one.strip() for one in ((anchor,) if isinstance(anchor, str) else anchor or ())]
    for one in given:
        if not (FEWEST_DIGITS <= len(one) <= 64 and DIGITS.issuperset(one.lower())):
            raise UsageError(
                f"`{one}` is not an anchor; an anchor is a ledger head of 64 hexadecimal digits, or at least its first {FEWEST_DIGITS}"
            )
    return tuple(one.lower() for one in given)


def check_anchors(ledgers: Sequence[LedgerContents], anchors: Sequence[str], worlds: Mapping[int, int] | None = None) -> AnchorCheck:
    """Compare anchors with the ledgers of a run.

    Args:
        ledgers: the ledgers of the run.
        anchors: heads that were noted earlier, as `checked` returns them: of the run, or of one ledger each.
        worlds: the number of processes by attempt, if the run is a launch.
    """
    findings: list[Finding] = []
    lines: dict[str, int] = {}
    for anchor in anchors:
        found = _found(ledgers, anchor)
        if found is None:
            findings.append(_rolled_back(ledgers, anchor))
            continue
        lines |= {name: max(count, lines.get(name, 0)) for name, count in found.items()}
    findings += _beyond(ledgers, lines) if lines else ()
    findings += _replaced(ledgers, lines, worlds)
    whole = bool(lines) and all(one.code in GROWN for one in findings)
    return AnchorCheck(tuple(findings), lines, whole)


def _found(ledgers: Sequence[LedgerContents], anchor: str) -> dict[str, int] | None:
    """The number of lines of each ledger that an anchor covers; None if it is the head of no state of these ledgers."""
    for heads, lines in _states(ledgers):
        if run_head(heads).startswith(anchor):
            return lines
    for ledger in ledgers:
        for number, head in enumerate(ledger.heads, 1):
            if head.startswith(anchor):
                return {ledger.name: number}
    return None


def _states(ledgers: Sequence[LedgerContents]) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """The states in which several ledgers have a head together: now, and after each place that all of them have reached.

    A place is attempt, epoch and segment; a ledger has reached it with its last leading line that is not above it.
    """
    yield _state(ledgers, {ledger.name: len(ledger.heads) for ledger in ledgers})
    if len(ledgers) < 2:
        return
    places = {ledger.name: [_place(entry) for entry in ledger.lines] for ledger in ledgers}
    lines = dict.fromkeys(places, 0)
    for place in sorted({place for of_ledger in places.values() for place in of_ledger}):
        for name, found in places.items():
            while lines[name] < len(found) and found[lines[name]] <= place:
                lines[name] += 1
        yield _state(ledgers, lines)


def _state(ledgers: Sequence[LedgerContents], lines: Mapping[str, int]) -> tuple[dict[str, str], dict[str, int]]:
    heads = {ledger.name: ledger.heads[lines[ledger.name] - 1] for ledger in ledgers if lines[ledger.name]}
    return heads, {name: lines[name] for name in heads}


def _place(entry: LedgerLine | None) -> tuple[int, int, int]:
    return (entry.attempt, entry.epoch, entry.segment or 0) if entry is not None else (1 << 32, 0, 0)


def covered(ledgers: Sequence[LedgerContents], lines: Mapping[str, int]) -> list[LedgerLine]:
    """The ledger lines that anchors cover."""
    return [entry for ledger in ledgers for entry in ledger.lines[: lines.get(ledger.name, 0)] if entry is not None]


def _beyond(ledgers: Sequence[LedgerContents], lines: Mapping[str, int]) -> Iterator[Finding]:
    """Lines that no anchor covers."""
    alone = all(".rank-" in name for name in lines)  # the head of one rank was taken for that of the run
    for ledger in ledgers:
        later = len(ledger.heads) - lines.get(ledger.name, 0)
        if later and ledger.name not in lines and alone:
            yield Finding(
                "anchor-partial", ledger.name, "no anchor covers this ledger; anchor the head of the run, or the heads of all ledgers"
            )
        elif later:
            yield Finding(
                "ledger-grown", ledger.name, f"{_follow(later)} those that the anchor covers: {_named(ledger, lines)} not anchored"
            )


def _follow(count: int) -> str:
    return f"{counted(count, 'line')} {'follows' if count == 1 else 'follow'}"


def _named(ledger: LedgerContents, lines: Mapping[str, int]) -> str:
    names = [f'"{entry.file}"' for entry in ledger.lines[lines.get(ledger.name, 0) :] if entry is not None]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {'is' if len(names) == 1 else 'are'}"


def _replaced(ledgers: Sequence[LedgerContents], lines: Mapping[str, int], worlds: Mapping[int, int] | None) -> Iterator[Finding]:
    """Files that counted when the anchor was taken, and that a later line has replaced."""
    now = {entry.file for entry in current((entry for ledger in ledgers for entry in ledger.entries), worlds).values()}
    then = covered(ledgers, lines)
    for entry in current(then, worlds).values():
        if entry.file not in now and not is_whole(then, entry):
            yield Finding(
                "anchor-resumed",
                entry.file,
                "the anchor covers it as an epoch that was not complete; since then a later attempt, which is not anchored, counts instead",
            )
        elif entry.file not in now:
            yield Finding("anchor-replaced", entry.file, "the anchor covers it, but a later attempt that no anchor covers replaces it")


def _rolled_back(ledgers: Sequence[LedgerContents], anchor: str) -> Finding:
    count = sum(len(ledger.heads) for ledger in ledgers)
    name = ledgers[0].name if ledgers else "ledger.jsonl"
    return Finding("ledger-rolled-back", name, f"none of its {count} lines has the hash {anchor}: lines were cut off or rewritten")
