"""The conformance matrix as the table of docs/conformance.md."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.case import Case
from tests.conformance.examine import Outcome

PAGE = Path(__file__).parent.parent.parent / "docs" / "conformance.md"
HEADER = (
    "| model | why it is in | modules | called | inputs and outputs | gradients | only ours | no gradient came |\n"
    "|---|---|---|---|---|---|---|---|"
)


def row_of(case: Case, found: Outcome) -> str:
    """The line of a case."""
    counts = (found.modules, found.called, found.values, found.gradients, found.more, found.unused)
    return f"| {case.name} | {case.about} | {' | '.join(map(str, counts))} |"


def stored_row(case: Case) -> str:
    """The line of a case as the page has it; empty where it has none."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    return next((line for line in lines if line.startswith(f"| {case.name} |")), "")


def page(found: list[tuple[Case, Outcome]], synthetic: int) -> str:
    """The whole page.

    Args:
        found: every case and what it came to.
        synthetic: how many of them, from the first, are small models of ours.
    """
    total = [sum(getattr(outcome, name) for _, outcome in found) for name in ("values", "gradients", "more")]
    rows = [row_of(*pair) for pair in found]
    return "\n".join(
        [
            "# Conformance",
            "",
            "Written by `python docs/conformance.py`; tests compare every row with what they find.",
            "",
            f"{len(found)} models are trained for two batches, three times from the same seed: plainly, with hooks written by hand",
            "on every module, and with one probe on `input`, `output` and `grad_output` of every module. For each of them losses,",
            "gradients, weights, buffers and random state are bit for bit the same with probes and without; every value and gradient",
            "has the bits that the hand-written hook saved, and none is missing; the accounts add up; no hook is left on the model.",
            f"In all, {total[0]:,} inputs and outputs and {total[1]:,} gradients are equal.",
            "",
            "*Only ours* are gradients of a `Linear` whose output is a view that is rewritten in place: PyTorch drops the hook",
            f"written by hand without a word ({total[2]} times). *No gradient came* counts outputs that nothing of the loss depends",
            "on; the file has the reason.",
            "",
            "## Small models, one for each trap",
            "",
            HEADER,
            *rows[:synthetic],
            "",
            f"## {len(found) - synthetic} architectures of transformers",
            "",
            "Built from tiny configurations, without weights.",
            "",
            HEADER,
            *rows[synthetic:],
            "",
        ]
    )
