"""Print a difference of two runs: for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from probes.printable import counted, in_markdown, one_line
from probes.proof.comparison.difference import Difference, Divergence, GapDifference, ProvenanceDifference, SeriesDifference

MANY = 20
HEX = frozenset("0123456789abcdef")
UNREAD = "`--read-all` reads them, `probes verify` checks the digests"
ANSWERS = {"same": "the same", "different": "different", "incomparable": "not comparable"}


def text(found: Difference) -> str:
    """Return the difference as text: first divergence, series, provenance, result."""
    lines: list[str] = []
    if found.first is not None:
        lines += ["first divergence", *(f"  {line}" for line in divergence(found.first)), ""]
    changed = [one for one in found.series if one.status != "same"]
    lines += [series_line(one) for one in changed[:MANY]]
    lines += [f"... and {len(changed) - MANY} more series"] if len(changed) > MANY else []
    lines += [_gap(one) for one in found.gaps[:MANY]]
    lines += [""] if changed or found.gaps else []
    lines += [*weights_lines(found), ""] if found.weights else []
    differ_in = [*origin_lines(found)]
    if differ_in:
        lines += ["the runs differ in", *(f"  {line}" for line in differ_in[:MANY])]
        lines += [f"  ... and {len(differ_in) - MANY} more"] if len(differ_in) > MANY else []
        lines += [""]
    lines += [line for one in _contradictions(found) for line in (one, "")]
    return "\n".join(map(one_line, [*lines, answer(found)]))


def weights_lines(found: Difference) -> Iterator[str]:
    """Yield the tensors that differ at the end of an epoch."""
    exact = ", which is not compared within a tolerance" if found.tolerances else ""
    yield f"weights at the end of epoch {found.weights[0].epoch} differ{exact}"
    for one in found.weights[:MANY]:
        where = "" if one.rank is None else f", rank {one.rank}"
        yield f"  {f'{one.model}:' if one.model else ''}{one.tensor}{where}: {_short(one.a)} | {_short(one.b)}"
    if len(found.weights) > MANY:
        yield f"  ... and {len(found.weights) - MANY} more"


def origin_lines(found: Difference) -> Iterator[str]:
    """Yield the differences in provenance; entries with the same note share a line, and equal runs have no notes."""
    noted: dict[str, list[str]] = {}
    for one in found.origins:
        if one.note:
            noted.setdefault(one.note, []).append(one.place)
        else:
            yield f"{one.place}: {_short(one.a)} | {_short(one.b)}"
    for note, places in noted.items() if not found.same else ():
        yield f"{', '.join(places)}: {note}"


def divergence(first: Divergence) -> Iterator[str]:
    """Yield the lines with the place and the size of the difference of two captures."""
    clock = first.clock
    place = [f"epoch {clock.epoch}", f"step {clock.step}"]
    place += [f"{name} {value}" for name, value in (("microstep", clock.microstep), ("call", clock.call)) if value > 0]
    place += [f"backward {clock.backward}"] if clock.backward else []
    place += [f"rank {clock.rank}"] if clock.rank else []
    yield f"{', '.join(place)}: {first.key}"
    yield f"{first.dtype}{list(first.shape)} at {list(first.index)}: {first.a} | {first.b}  ({first.bits_a} | {first.bits_b})"
    ulp = f", {first.ulp} ulp" if first.ulp is not None else ""
    differ = f"{counted(first.elements, 'element')} {'differs' if first.elements == 1 else 'differ'}"
    cosine = f", cosine {first.cosine:.9g}" if first.cosine is not None else ""
    yield f"{differ}: max abs {first.max_abs:.3g}, max rel {first.max_rel:.3g}{cosine}{ulp}"


def series_line(one: SeriesDifference) -> str:
    """Return the line of a series that differs."""
    counts = ((one.different, "differ"), (one.within, "within tolerance"), (one.missing, "missing"), (one.extra, "extra"))
    parts = [f"{count} {what}" for count, what in counts if count]
    parts += [f"{one.incomparable} not comparable: {one.reason}"] if one.incomparable else []
    parts += [f"max abs {one.max_abs:.3g}"] if one.max_abs else []
    renamed = f" = {one.other}" if one.other else ""
    return f"{one.status:<12}  {one.key}{renamed}  {', '.join(parts)}"


def _gap(one: GapDifference) -> str:
    return f"epoch {one.epoch}, missing captures of {one.key}: {one.a} in A, {one.b} in B ({one.reason})"


def answer(found: Difference) -> str:
    """Return the last line: the verdict and its basis."""
    counts = found.counts
    how = "within tolerance" if found.tolerances else "bit for bit"
    unscaled = sum(one.unscaled for one in found.series)
    scales = f", {unscaled} of them divided by their loss scales, which differ" if unscaled else ""
    read = counts["compared"] - counts["by_digest"]
    parts = [f"{_captures(counts['by_digest'])} compared by digest, values not read ({UNREAD})"] if counts["by_digest"] else []
    parts += [f"{_captures(read)} compared {how}{scales}"] if read or not parts else []
    trusted = " if their recorded digests are true" if counts["by_digest"] and found.same else ""
    return f"{found.a} and {found.b} are {ANSWERS[found.verdict]}{trusted}: {', '.join(parts)}"


def _captures(count: int) -> str:
    return counted(count, "capture")


def _contradictions(found: Difference) -> Iterator[str]:
    """State that recorded digests are not those of the values."""
    count = found.counts["contradicting"]
    if count:
        changed = "a file was changed after it was sealed; `probes verify` says which"
        yield f"the recorded digests of {_captures(count)} agree although the values differ: {changed}"


def markdown(found: Difference) -> str:
    """Return the difference as Markdown."""
    lines = [f"### Captures are {ANSWERS[found.verdict]}", "", in_markdown(answer(found)), ""]
    lines += [line for one in _contradictions(found) for line in (in_markdown(one), "")]
    if found.first is not None:
        lines += ["First divergence:", "", "```", *(one_line(line).replace("`", "'") for line in divergence(found.first)), "```", ""]
    changed = [one for one in found.series if one.status != "same"]
    if changed:
        lines += ["| series | found | differ | missing | extra | max abs | first |", "|---|---|---|---|---|---|---|"]
        lines += [_row(one) for one in changed[:MANY]]
        lines += [f"\n... and {len(changed) - MANY} more series" if len(changed) > MANY else "", ""]
    if found.gaps:
        lines += ["Missing captures:", "", *(f"- {_cell(_gap(one))}" for one in found.gaps[:MANY]), ""]
    if found.weights:
        head, *rows = weights_lines(found)
        lines += [f"{in_markdown(head)}:", "", *(f"- {in_markdown(row.strip())}" for row in rows), ""]
    differences = [one for one in found.origins if not (one.note and found.same)]
    if differences:
        lines += ["The runs differ in:", "", "| what | A | B |", "|---|---|---|"]
        lines += [f"| `{_cell(one.place)}` | {_cell(one.a)} | {_cell(one.b)}{_cell(_aside(one))} |" for one in differences[:MANY]]
        lines += [""]
    return "\n".join(lines)


def _aside(one: ProvenanceDifference) -> str:
    return f" ({one.note})" if one.note else ""


def _row(one: SeriesDifference) -> str:
    first = one.first.clock if one.first else one.gap
    where = f"epoch {first.epoch}, step {first.step}" if first else ""
    name = _cell(str(one.key))
    return f"| `{name}` | {one.status} | {one.different} | {one.missing} | {one.extra} | {one.max_abs:.3g} | {where} |"


def _short(value: str) -> str:
    """Return a text with its digests cut to 12 digits."""
    return " ".join(f"{word[:12]}.." if len(word) in (40, 64) and set(word) <= HEX else word for word in value.split(" "))[:200]


def _cell(value: str) -> str:
    """Return a text that is safe in a table cell."""
    return in_markdown(_short(value))
