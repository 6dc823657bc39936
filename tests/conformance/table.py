"""The conformance matrix as the table of docs/conformance.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.conformance.case import Case
from tests.conformance.examine import Outcome

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "conformance.md"
README = ROOT / "README.md"
HEADER = (
    "| model | special feature | modules | called | inputs and outputs | gradients | only `probes` | no gradient came |\n"
    "|---|---|---|---|---|---|---|---|"
)

SUMMARY_HEADER = (
    "| compared with hooks written by hand | models | modules | inputs and outputs with the same bits | gradients with the same bits "
    "| values with other bits or missing | changed trainings | hooks left on the model |\n|---|---|---|---|---|---|---|---|"
)
SUMMARY = re.compile(r"^\| compared with hooks written by hand .*?(?=^$)", re.MULTILINE | re.DOTALL)


class Family(NamedTuple):
    """A part of the matrix.

    Attributes:
        name: stands in the README.
        about: what stands above its rows.
        cases: its models.
    """

    name: str
    about: str
    cases: list[Case]


def row_of(case: Case, found: Outcome) -> str:
    """The line of a case."""
    counts = (found.modules, found.called, found.values, found.gradients, found.more, found.unused)
    return f"| {case.name} | {case.about} | {' | '.join(map(str, counts))} |"


def stored_row(case: Case) -> str:
    """The line of a case as the page has it; empty where it has none."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    return next((line for line in lines if line.startswith(f"| {case.name} |")), "")


def counts(cases: list[Case]) -> list[int]:
    """Modules that can be called, those that were, values, gradients, only ours, without: what the page has for some models."""
    cells = [[int(cell) for cell in stored_row(case).strip("| ").split(" | ")[2:]] for case in cases]
    return [sum(column) for column in zip(*cells, strict=True)]


def summary(families: list[Family]) -> str:
    """The README's table: what the page says, added up; a model that differed in anything would have no row there."""
    lines = [summary_row(family.name, family.cases) for family in families]
    return "\n".join([SUMMARY_HEADER, *lines, summary_row("all", [case for family in families for case in family.cases]), ""])


def summary_row(name: str, cases: list[Case]) -> str:
    modules, _, values, gradients, *_ = counts(cases)
    return f"| {name} | {len(cases)} | {modules:,} | {values:,} | {gradients:,} | 0 | 0 | 0 |"


def page(families: list[Family], found: dict[str, Outcome]) -> str:
    """The whole page.

    Args:
        families: the parts of the matrix.
        found: what every case came to, by its name.
    """
    total = [sum(getattr(outcome, name) for outcome in found.values()) for name in ("values", "gradients", "more")]
    return "\n".join(
        [
            "# Conformance",
            "",
            "Written by `python docs/conformance.py`; tests compare every row with what they find.",
            "",
            f"{len(found)} models are trained for two batches, three times from the same seed: without hooks, with hooks written by hand",
            "on every module, and with one probe on `input`, `output` and `grad_output` of every module. For each model:",
            "",
            "- losses, gradients, weights, buffers and random state are bit-identical with probes and without;",
            "- every captured value and gradient has the same bits as the one that the hook written by hand saved, and none is missing;",
            "- the counters of the run agree with the number of captures, and no hook is left on the model.",
            "",
            f"In total, {total[0]:,} inputs and outputs and {total[1]:,} gradients are equal.",
            "",
            "*Only `probes`* counts gradients that only `probes` captured: of a `Linear` whose output is a view changed in place.",
            f"PyTorch silently drops the hook written by hand ({total[2]} times). *No gradient came* counts outputs that the loss does not",
            "depend on, and views (not of a `Linear`) that were changed in place; the capture file contains the reason.",
            *(line for family in families for line in section(family, found)),
            "",
        ]
    )


def section(family: Family, found: dict[str, Outcome]) -> list[str]:
    """The lines of one part."""
    rows = [row_of(case, found[case.name]) for case in family.cases]
    return ["", f"## {family.name[0].upper()}{family.name[1:]}", "", family.about, "", HEADER, *rows]
