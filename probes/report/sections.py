"""The text sections of the page: captures, verification, triggers, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probes.printable import counted, in_html, several_lines
from probes.proof.comparison.difference import Difference
from probes.report.content import RunContent
from probes.report.difference_text import ANSWERS, divergence, origin_lines
from probes.report.module_tree import tree, tree_html
from probes.report.page import Block, Heading, Paragraph, Table, fragment
from probes.report.proof_page import blocks, facts
from probes.report.verdict_text import anchored
from probes.signature import size

MANY = 200
SHORT = ("spec", "script", "PyTorch", "device", "started")  # limit of facts of a card
EVENT = dict.fromkeys(("number", "leaf", "target", "kind", "index", "epoch", "phase", "step"), "?") | {"steps": 0}
WHERE = "{number} in {leaf} of {target} ({kind}) at {index}: epoch {epoch}, {phase} step {step}; {steps} steps were written"


def overview(runs: Sequence[RunContent]) -> str:
    """The captures and the verification, one card for each run."""
    return f'<div class="cards">{"".join(map(_card, runs))}</div>'


def _card(run: RunContent) -> str:
    verdict, count, known = run.verdict, sum(run.captures.values()), dict(facts(run.manifest))
    answer, kind = ("verifies", "good") if verdict.ok else ("does not verify", "bad")
    wrong = sum(not one.note for one in verdict.findings)
    detail = counted(len(verdict.files), "file") if verdict.ok else counted(wrong, "finding")
    lines = [
        f"{count:,} captures in {len(run.captures):,} series, {size(run.nbytes)}",
        _epochs(run),
        ", ".join(f"{name} {known[name]}" for name in SHORT if name in known),
    ]
    compared = anchored(verdict) if verdict.anchored else "not compared with an anchor"
    text = "".join(f"<p>{in_html(line)}</p>" for line in lines if line)
    remarks = "".join(f"<li>{in_html(line)}</li>" for line in (*run.remarks[:MANY], *_more(run.remarks)))
    about = next((line.removeprefix("about: ") for line in run.spec.splitlines() if line.startswith("about: ")), "")
    asked = f'<p class="about">{in_html(about)}</p>' if about else ""
    head = f'<h2>{in_html(run.name)}</h2><p class="verdict {kind}">{answer} ({detail}, {compared})</p>'
    return (
        f'<section class="card">{head}{asked}{text}{captured(run)}{f"""<ul class="remarks">{remarks}</ul>""" if remarks else ""}</section>'
    )


def _more(listed: Sequence[object]) -> list[str]:
    return [f"... and {len(listed) - MANY} more"] if len(listed) > MANY else []


def _epochs(run: RunContent) -> str:
    states = sorted(set(run.state.values()))
    counts = {state: sum(one == state for one in run.state.values()) for state in states}
    return "epochs: " + (", ".join(f"{count} {state}" for state, count in counts.items()) or "none")


def findings(runs: Sequence[RunContent]) -> str:
    """The events of triggers and the verdicts of rules."""
    return "".join(map(_findings, runs))


def _findings(run: RunContent) -> str:
    seen = [_event({name: str(value) for name, value in one.items()}) for one in run.events]
    found: list[Block] = []
    for title, lines in (("What triggers found", seen), ("Rules of the spec that were broken", run.rules)):
        if lines:
            found += [Heading(f"{title}: {run.name}"), Table(("found",), [(line,) for line in (*lines[:MANY], *_more(lines))])]
    return fragment(found)


def _event(one: Mapping[str, str]) -> str:
    return (f"rank {one['rank']}: " if "rank" in one else "") + WHERE.format(**{**EVENT, **one})


def captured(run: RunContent) -> str:
    """The captures of each probe: number of targets and of captures."""
    rows: dict[tuple[str, str, str], tuple[int, int]] = {}
    for key, count in run.captures.items():
        place = (key.probe, key.leaf.partition(".")[0], key.phase)
        targets, captures = rows.get(place, (0, 0))
        rows[place] = targets + 1, captures + count
    table = [(*place, f"{targets:,}", f"{captures:,}") for place, (targets, captures) in rows.items()]
    listed = fragment([Table(("probe", "value", "phase", "series", "captures"), table[:MANY])])
    return f"<details><summary>what each probe captured</summary>{listed}</details>" if table else ""


def modules(run: RunContent) -> str:
    """The module tree with the captures of each module."""
    return f"<h3>{in_html(run.name)}</h3>{tree_html(tree(run.manifest, run.captures))}" if run.captures else ""


def provenance(run: RunContent) -> str:
    """The origin of the run, the proof, and its spec."""
    spec = f'<details><summary>spec as it was written</summary><pre dir="ltr">{_lines(run.spec)}</pre></details>' if run.spec else ""
    proof = fragment(blocks(run.verdict, origin=False)[1:])
    sentence = f"<p>{in_html(in_words(run))}</p>"
    table = fragment([Table(("what", "value"), facts(run.manifest))])
    return f"<h3>{in_html(run.name)}</h3>{sentence}{table}{spec}<details><summary>proof</summary>{proof}</details>"


def in_words(run: RunContent) -> str:
    """One sentence on the origin of the captures."""
    known = dict(facts(run.manifest))
    if not known:
        return "The run does not state its origin."
    parts = [f"The script {known['script']}" if "script" in known else "A program that attached the probes itself"]
    if "commit" in known:
        parts.append(f"of commit {known['commit'][:12]}" + (" with uncommitted changes" if "uncommitted changes" in known else ""))
    parts.append(f"recorded this with PyTorch {known.get('PyTorch', '?')} and {known.get('Python', 'Python')}")
    parts += [f"on {known['device']}"] if "device" in known else []
    parts += [f"with seed {known['seed of PyTorch']}"] if "seed of PyTorch" in known else []
    parts += [f"from {known['started']} on"] if "started" in known else []
    return " ".join(parts) + "."


def comparison(runs: Sequence[RunContent], difference: Difference | None) -> str:
    """For two runs the first divergence and the differences by series; for several runs the differences in provenance."""
    if len(runs) < 2:
        return ""
    first, each = (fragment(_first(difference)), fragment(_each(difference))) if difference is not None else ("", "")
    origins = fragment([Heading("Origin side by side", 3), _side_by_side(runs)])
    return f'<section id="comparison"><h2>Runs compared</h2>{first}<div id="partings"></div>{each}{origins}</section>'


def _first(found: Difference) -> Iterator[Block]:
    """The first divergence."""
    if found.first is None:
        yield Paragraph(f"No capture differs: {found.a} and {found.b} are {ANSWERS[found.verdict]}.")
        return
    yield Heading("First divergence", 3)
    yield Table(("what", "found"), list(zip(("where", "first element", "all elements"), divergence(found.first), strict=True)))


def _each(found: Difference) -> Iterator[Block]:
    """A row for each series that differs, in the order of the plan."""
    changed = [one for one in found.series if one.status != "same"]
    if changed:
        yield Heading("Where they part, layer by layer", 3)
        rows = [(str(one.key), *_place(one.first or one.gap), one.status, *_sizes(one)) for one in changed[:MANY]]
        yield Table(("series", "first at", "answer", "captures that differ", "largest difference", "relative"), rows)
        yield from (Paragraph(line) for line in _more(changed))
    origins = list(origin_lines(found))
    if origins:
        yield Heading("The runs differ in", 3)
        yield Table(("what",), [(line,) for line in origins[:MANY]])


def _place(one: Any) -> tuple[str]:
    clock = getattr(one, "clock", one)
    return (f"epoch {clock.epoch}, step {clock.step}" if clock is not None else "",)


def _sizes(one: Any) -> tuple[str, str, str]:
    return f"{one.different} of {one.compared}", f"{one.max_abs:.3g}", f"{one.max_rel:.3g}"


def _side_by_side(runs: Sequence[RunContent]) -> Table:
    """The facts in which the runs differ."""
    known = [dict(facts(run.manifest)) | {f"tag {name}": str(value) for name, value in _tags(run)} for run in runs]
    names = [name for name in dict.fromkeys(name for one in known for name in one) if len({one.get(name) for one in known}) > 1]
    return Table(("what", *(run.name for run in runs)), [(name, *(one.get(name, "-") for one in known)) for name in names])


def _tags(run: RunContent) -> Iterator[tuple[str, Any]]:
    found = run.manifest.get("tags")
    yield from sorted(found.items()) if isinstance(found, dict) else ()


def _lines(text: str) -> str:
    """Lines of a text, with every character visible."""
    return "\n".join(in_html(line) for line in several_lines(text[:100_000]).split("\n"))


def title(paths: Sequence[Path]) -> str:
    """The title of the page."""
    return f"Report of {', '.join(map(str, paths[:4]))}" + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
