"""Resolving a spec against a model: patterns to targets, values to hooks, signatures through transforms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch.nn import Module

from probes.errors import PlanError, Problem, nearest
from probes.plan.binding import Binding, Plan
from probes.plan.compiled import refuse_in_fullgraph
from probes.plan.draft import Draft, Target
from probes.plan.edits import refuse_bad_edits, source_of
from probes.plan.kernel_path import note_fast_paths
from probes.plan.memory import refuse_without_counters
from probes.plan.modules import module_targets
from probes.plan.parameters import tensor_targets
from probes.plan.rings import refuse_large_rings
from probes.plan.small_sinks import refuse_large_captures
from probes.plan.tree import Tree
from probes.signature import Signature, SignatureError
from probes.spec import LoadedSpec, Probe, load_spec
from probes.value_path import HOOK_OF


def resolve(spec: Any, model: Module | Mapping[str, Module]) -> Plan:
    """Resolve a spec against a model; nothing of the model is called or changed.

    Args:
        spec: what `load_spec` takes, or a LoadedSpec.
        model: the model, or several by name.

    Raises:
        SpecError: the spec does not say what a spec may say.
        PlanError: the spec does not fit the model; every reason is listed.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load_spec(spec)
    trees = {name: Tree(one) for name, one in model.items()} if isinstance(model, Mapping) else {"": Tree(model)}
    chosen = {name: probe for name, probe in loaded.spec.probes.items() if probe.enabled}
    drafts = [Draft(name, probe, trees[probe.model or ""], loaded) for name, probe in chosen.items() if (probe.model or "") in trees]
    bindings = [binding for draft in drafts for binding in _bindings(draft)]
    refuse_bad_edits(drafts, bindings)
    refuse_in_fullgraph(drafts, bindings)
    note_fast_paths(drafts, bindings)
    refuse_large_captures(drafts, bindings)
    refuse_without_counters(drafts, bindings)
    refuse_large_rings(drafts, bindings)
    missing = [_no_model(loaded, name, probe, trees) for name, probe in chosen.items() if (probe.model or "") not in trees]
    problems = [*missing, *(problem for draft in drafts for problem in draft.problems)]
    if problems:
        raise PlanError(problems)
    return Plan(
        loaded,
        trees,
        tuple(replace(binding, index=index) for index, binding in enumerate(bindings)),
        {draft.name: tuple(draft.dropped) for draft in drafts if draft.dropped},
        tuple(note for draft in drafts for note in draft.notes),
    )


def _no_model(loaded: LoadedSpec, name: str, probe: Probe, trees: Mapping[str, Tree]) -> Problem:
    """That the model of a probe is not among those that were given."""
    wanted = probe.model or ""
    said = f"names model `{wanted}`" if wanted else "names no model"
    message = f"probe `{name}` {said}, but the run has {', '.join(f'`{key}`' for key in trees if key) or 'a single one'}"
    several = any(trees)
    hint = nearest(wanted, trees) if several else 'leave `model` out, or attach to several: {"NAME": model, ...}'
    return loaded.locate(("probes", name)).at(code="unknown-model", message=message, hint=hint)


def _bindings(draft: Draft) -> Iterator[Binding]:
    """The bindings of one probe, in the order of the model, then of the values."""
    matched = list(tensor_targets(draft)) if draft.probe.tensors else list(module_targets(draft))
    expected = draft.probe.expect.matches if draft.probe.expect else None
    count = len({target.path for target in matched})
    if expected is not None and count != expected:
        hint = f"write {count}, or change what the probe names; `probes plan` without `expect` shows what matches"
        draft.refuse("unexpected-matches", f"matches {count} targets, but `expect.matches` says {expected}", hint, "expect", "matches")
    limit = draft.loaded.spec.limits.matches_per_probe
    if count > limit:
        draft.refuse("too-many-matches", f"matches {count} targets, the limit is {limit}", "narrow it or raise `limits.matches_per_probe`")
        return
    seen: set[tuple[int, str]] = set()
    for target in matched:
        name = (id(target.node.module), target.path if target.root in ("grad", "data") else target.value)
        if name not in seen:
            seen.add(name)
            yield _binding(draft, target)


def _binding(draft: Draft, target: Target) -> Binding:
    probe, node = draft.probe, target.node
    source, digest = source_of(draft, target)
    seen = target.seen if target.seen.dtype else Signature(dims=probe.dims)
    return Binding(
        index=0,
        name=draft.name,
        probe=probe,
        model=probe.model or "",
        target=target.path,
        module=node.path,
        raw=node.raw,
        aliases=tuple(node.aliases),
        hook=HOOK_OF[target.root],
        root=target.root,
        keys=target.keys,
        stage=_stage(probe, target),
        exact=target.exact,
        kind=node.kind,
        seen=seen,
        stored=_fold(draft, seen),
        neutral=target.root != "grad_input" and probe.edit is None,
        source=source,
        source_blake3=digest,
    )


def _stage(probe: Probe, target: Target) -> str:
    return (probe.stage or "increment") if target.root == "grad" else ""


def _fold(draft: Draft, signature: Signature) -> Signature:
    for index, transform in enumerate(draft.probe.transforms):
        try:
            signature = transform.out(signature)
        except SignatureError as error:
            draft.refuse("transform-does-not-fit", f"transform `{transform.kind}`: {error}", "", "transforms", index)
            return Signature()
    return signature
