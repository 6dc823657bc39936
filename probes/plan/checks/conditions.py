"""Checks of conditions: each must compare one number."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from probes.plan.draft import ProbeDraft
from probes.signature import Signature, SignatureError
from probes.spec.when import Condition


def check_conditions(draft: ProbeDraft, value: str, seen: Signature, stored: Signature) -> None:
    """Refuse conditions that do not compare one number, as far as that is known.

    Args:
        draft: the probe.
        value: the value path.
        seen: what is known about the value.
        stored: what is known about it after the transforms.
    """
    for condition, place in _conditions(draft):
        try:
            number = stored if condition.of is None else condition.of.out(seen)
        except SignatureError as error:
            draft.refuse("wrong-condition", f"`{condition.of.kind if condition.of else ''}` of `{value}`: {error}", "", *place, "of")
            continue
        if number.shape is not None and None not in number.shape and prod(size or 0 for size in number.shape) != 1:
            what = f"the stored `{value}`" if condition.of is None else f"`{condition.of.kind}` of `{value}`"
            message = f"a condition compares one number, and {what} is `{number}`"
            hint = "add `of`, such as `of: {kind: norm}`" if condition.of is None else "reduce all axes, such as `{kind: reduce, op: max}`"
            draft.refuse("wrong-condition", message, hint, *place)


def _conditions(draft: ProbeDraft) -> Iterator[tuple[Condition, tuple[str, ...]]]:
    trigger = draft.probe.when.trigger
    if draft.probe.where is not None and not draft.probe.where.is_elsewhere:
        yield draft.probe.where, ("where",)
    if trigger is not None and trigger.kind == "threshold" and not trigger.is_elsewhere:
        yield trigger, ("when", "trigger")
