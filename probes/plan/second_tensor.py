"""The second tensor of a comparison, for each binding of a probe with `against`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probes.digest import blake3_hex
from probes.errors import ProbesError, nearest
from probes.module_glob import ModuleGlob
from probes.plan.binding import Binding, SecondTensor
from probes.plan.draft import ProbeDraft
from probes.reader import run as reader
from probes.reader.run import RunReader
from probes.spec.models import Against

Bound = list[tuple[ProbeDraft, list[Binding]]]


def with_second_tensors(bound: Bound) -> Bound:
    """Add the second tensors to the bindings; a binding with several comparison targets becomes several.

    Args:
        bound: every probe with its bindings.
    """
    known = {draft.name: bindings for draft, bindings in bound}
    return [(draft, list(_of_probe(draft, bindings, known))) for draft, bindings in bound]


def _of_probe(draft: ProbeDraft, bindings: Sequence[Binding], known: dict[str, list[Binding]]) -> Iterator[Binding]:
    against = draft.probe.against
    if against is None:
        yield from bindings
    elif against.step is not None:
        yield from (replace(binding, second=SecondTensor(step=against.step)) for binding in bindings)
    elif against.run is not None:
        yield from _of_run(draft, bindings, against, against.run)
    elif against.series in known:
        _note_schedules(draft, known[against.series][0] if known[against.series] else None)
        for binding in bindings:
            yield from _of_series(draft, binding, against, known[against.series])


def _note_schedules(draft: ProbeDraft, other: Binding | None) -> None:
    if other is not None and other.probe.when.schedule != draft.probe.when.schedule:
        message = f"values are compared in steps in which `{other.name}` is due too; the two schedules differ"
        draft.note("other-schedule", message, "against")


def _of_series(draft: ProbeDraft, binding: Binding, against: Against, others: Sequence[Binding]) -> Iterator[Binding]:
    """The binding with each target of its comparison."""
    several = against.target is not None and not ModuleGlob(against.target).is_exact
    found = [other for other in others if _is_target(other, binding, against)]
    if not found and against.target is None:
        found = list(others) if len({other.target for other in others}) == 1 else []
    by_target = {target: [one for one in found if one.target == target] for target in dict.fromkeys(one.target for one in found)}
    for target, chosen in by_target.items():
        same = [one for one in chosen if one.seen == binding.seen] or chosen
        if len(same) > 1:
            values = ", ".join(f"`{one.seen}`" for one in same)
            message = f"`{binding.seen}` of `{binding.target}` could be compared with each of {values} of probe `{against.series}`"
            draft.refuse("no-second-tensor", message, "give each of them a probe", "against", "series")
            continue
        other = same[0]
        yield replace(
            binding,
            second=SecondTensor(series=(other.name, other.target, other.seen), suffix=target if several else None),
        )
    if not found and others and not (several and any(_is_target(other, one, against) for one in others for other in others)):
        targets = [other.target for other in others]
        wanted = binding.target if against.target is None else against.target
        message = f"probe `{against.series}` has no target `{wanted}` to compare `{binding.target}` with"
        hint = nearest(wanted, targets) or f'add `target: {targets[0]}`, or `target: "**"` for each'
        draft.refuse("no-second-tensor", message, hint, "against")


def _is_target(other: Binding, binding: Binding, against: Against) -> bool:
    if other.name == binding.name and other.target == binding.target:
        return False
    if against.target is None:
        return other.target == binding.target
    glob = ModuleGlob(against.target)
    return other.target == glob.exact if glob.is_exact else bool(glob.matches(other.target))


def _of_run(draft: ProbeDraft, bindings: Sequence[Binding], against: Against, path: str) -> Iterator[Binding]:
    """The bindings with the series of another run."""
    folder = draft.loaded.folder or Path(draft.loaded.name).parent
    try:
        run = reader.open(folder / path)
        digest = blake3_hex(json.dumps([[*place, root] for place, root in sorted(run.captures_roots.items())]).encode())
    except (ProbesError, OSError, ValueError, LookupError) as error:
        message = f"the run to compare with cannot be read: {error}"
        draft.refuse("no-second-tensor", message, "paths are relative to the folder of the spec", "against", "run")
        return
    name = against.probe or draft.name
    targets = sorted({one.key.target for one in run.series if one.key.probe == name})
    if not targets:
        names = sorted({one.key.probe for one in run.series})
        hint = nearest(name, names) or f"its probes are {', '.join(f'`{one}`' for one in names)}"
        key = ("against", "probe" if against.probe else "run")
        draft.refuse("no-second-tensor", f'run "{path}" has no captures of a probe `{name}`', hint, *key)
        return
    yield from _beside(draft, bindings, against, SecondRun(run, path, name, targets, digest))


@dataclass(frozen=True)
class SecondRun:
    """A run with which values are compared.

    Attributes:
        run: its reader.
        path: as the spec has it.
        probe: its probe.
        targets: the targets of that probe.
        digest: of its captures roots.
    """

    run: RunReader
    path: str
    probe: str
    targets: Sequence[str]
    digest: str


def _beside(draft: ProbeDraft, bindings: Sequence[Binding], against: Against, other: SecondRun) -> Iterator[Binding]:
    missing = []
    for binding in bindings:
        target = binding.target if against.target is None else against.target
        target = target if target in other.targets or len(other.targets) > 1 or against.target else other.targets[0]
        if target not in other.targets:
            missing.append(target)
            if binding.exact:
                message = f'run "{other.path}" has no captures of `{target}` by probe `{other.probe}`'
                draft.refuse("no-second-tensor", message, nearest(target, other.targets) or f"it has `{other.targets[0]}`", "against")
            continue
        yield replace(binding, second=SecondTensor(run=other.run, probe=other.probe, target=target, digest=other.digest))
    if missing and len(missing) == len(bindings) and not any(binding.exact for binding in bindings):
        message = f'run "{other.path}" has no captures of `{missing[0]}`, or of any other target of the probe'
        draft.refuse("no-second-tensor", message, nearest(missing[0], other.targets) or f"it has `{other.targets[0]}`", "against")
    elif missing:
        draft.note("no-second-tensor", f'run "{other.path}" has no captures of {len(missing)} targets, such as `{missing[0]}`', "against")
