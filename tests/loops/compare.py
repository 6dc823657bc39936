"""What was captured, next to what was seen by hand and what the truth says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probes
from tests.loops.digests import digest_of
from tests.loops.truth import PHASES, Slot, Truth

Row = tuple[Any, ...]


def seen_calls(truth: Truth, log: dict[str, Any]) -> dict[str, list[list[dict[str, Any]]]]:
    """For each phase the outermost calls into the captured model's tree, each as the list of calls of the target in it.

    Where several models are captured under one clock, the outermost calls into any of them.
    """
    if truth.captured is None:
        return {phase: [] for phase in PHASES}
    calls = [call for call in log["calls"] if not call["traced"]]
    found = [tree_of(*named, calls, log) for named in (truth.captured, *truth.others)]
    return by_phase(calls, log, found, set(log["trees"][found[0]]["paths"].get(truth.target, ())))


def tree_of(kind: str, instance: int, calls: list[dict[str, Any]], log: dict[str, Any]) -> int:
    """The number of the tree that a truth names."""
    known = in_order_of_first_calls(kind, calls, log)
    if instance >= len(known):
        raise AssertionError(f"the truth says {kind}[{instance}], of which {len(known)} are called")
    return known[instance]


def in_order_of_first_calls(kind: str, calls: list[dict[str, Any]], log: dict[str, Any]) -> list[int]:
    """The trees of a class that were called, or something of which was."""
    order: dict[int, None] = {}
    for call in calls:
        for at, tree in enumerate(log["trees"]):
            if tree["class"] == kind and any(call["module"] in numbers for numbers in tree["paths"].values()):
                order.setdefault(at)
    return list(order)


def by_phase(calls: list[dict[str, Any]], log: dict[str, Any], trees: list[int], wanted: set[int]) -> dict[str, list[list[dict[str, Any]]]]:
    """The outermost calls into some trees by phase, with the calls of the target within each."""
    tree = {number for at in trees for numbers in log["trees"][at]["paths"].values() for number in numbers}
    found: dict[str, list[list[dict[str, Any]]]] = {phase: [] for phase in PHASES}
    within: dict[int, list[dict[str, Any]]] = {}
    for call in calls:
        if call["module"] not in tree:
            continue
        above = next((number for number in ancestors(call, log["calls"]) if number in within), None)
        if above is None:
            training = any(call["training"].get(str(at), False) for at in trees)
            within[call["number"]] = []
            found["train" if training and call["grad"] else "eval"].append(within[call["number"]])
            above = call["number"]
        if call["module"] in wanted:
            within[above].append(call)
    return found


def ancestors(call: dict[str, Any], every: list[dict[str, Any]]) -> Iterator[int]:
    """The numbers of the calls that a call is made in, the nearest first."""
    while call["parent"] is not None:
        yield call["parent"]
        call = every[call["parent"]]


def disagreements(truth: Truth, log: dict[str, Any]) -> list[str]:
    """Where the truth by hand does not fit the calls that were seen, so that it cannot be true."""
    seen = seen_calls(truth, log)
    counts = {phase: (len(truth.slots(phase)), len(seen[phase])) for phase in PHASES}
    return [f"{phase}: {hand} calls by hand, {found} were seen" for phase, (hand, found) in counts.items() if hand != found]


def expected_rows(truth: Truth, log: dict[str, Any], probe: str) -> dict[str, list[Row]]:
    """What a probe must have captured, by phase: clock and digest, sorted."""
    rows: dict[str, list[Row]] = {}
    for phase, calls in seen_calls(truth, log).items():
        for slot, targets in zip(truth.slots(phase), calls, strict=True):
            if slot.kept and not (probe == "sparse" and slot.step % 2):
                for call, each in enumerate(targets):
                    rows.setdefault(phase, []).extend(rows_of(slot, call, each, probe))
    return {phase: sorted(found) for phase, found in rows.items() if found}


def rows_of(slot: Slot, call: int, seen: dict[str, Any], probe: str) -> Iterator[Row]:
    """The captures of one call of the target."""
    place = slot[:4]
    if probe == "values":
        yield from ((*place, call, 0, "input", digest) for digest in seen["inputs"])
    if probe in ("values", "sparse"):
        yield from ((*place, call, 0, f"output.{name}".rstrip("."), digest) for name, digest in seen["outputs"].items())
    if probe == "gradient":
        fired: dict[str, int] = {}
        for name, digest in seen["gradients"]:
            yield (*place, call, fired.setdefault(name, 0), f"grad_output.{name}".rstrip("."), digest)
            fired[name] += 1


def captured_rows(run: Path, probe: str, target: str) -> dict[str, list[Row]]:
    """What a probe did capture, by phase: clock and digest, sorted."""
    rows: dict[str, list[Row]] = {}
    for series in probes.open(run).series if is_run(run) else ():
        key = series.key
        if (key.probe, key.target) != (probe, target):
            continue
        leaf = "input" if key.leaf.startswith("input") else key.leaf
        for one in series.by_dtype():
            for capture in one:
                clock, value = capture.clock, capture.value
                digest = digest_of(str(value.dtype), value.shape, value.tobytes())
                place = (clock.epoch, clock.step, clock.global_step, clock.microstep, clock.call, clock.backward)
                rows.setdefault(key.phase, []).append((*place, leaf, digest))
    return {phase: sorted(found) for phase, found in rows.items()}


def is_run(folder: Path) -> bool:
    """Whether anything was recorded there."""
    return (folder / "run.json").exists()


def files(folder: Path) -> dict[str, str]:
    """The files that a program left, with digests of them; not those of a run in `runs`."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not {"__pycache__", "runs"} & {*path.parts}]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def difference(expected: dict[str, list[Row]], captured: dict[str, list[Row]]) -> str:
    """What is missing and what is too much, in few lines of (epoch, step, global step, microstep, call, backward, leaf, digest)."""
    lines = []
    for phase in sorted({*expected, *captured}):
        due, got = expected.get(phase, []), captured.get(phase, [])
        if due != got:
            missing, extra = [row for row in due if row not in got], [row for row in got if row not in due]
            lines.append(f"{phase}: {len(due)} due, {len(got)} captured:")
            lines += [f"  missing {row}" for row in missing[:6]] + [f"  extra   {row}" for row in extra[:6]]
    return "\n".join(lines)
