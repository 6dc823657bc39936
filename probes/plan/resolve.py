"""Resolving a spec against a model: patterns to targets, values to hooks, signatures through transforms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.nn import Module

from probes.component import TensorComparison, Transform
from probes.errors import PlanError, Problem, nearest
from probes.plan.binding import Binding, Plan
from probes.plan.checks.bindings import check, rule_problems
from probes.plan.checks.conditions import check_conditions
from probes.plan.checks.operations import check_operation_of, check_operations
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.plan.edit_source import digest_of, given_of, source_of
from probes.plan.match_modules import module_values
from probes.plan.match_tensors import tensor_values
from probes.plan.tree import Tree
from probes.signature import Signature, SignatureError
from probes.spec import LoadedSpec, Probe, load_spec
from probes.value_path import PARAMETER_ROOTS


def resolve(spec: Any, model: Module | Mapping[str, Module], given: Mapping[str, Any] | None = None) -> Plan:
    """Resolve a spec against a model; nothing of the model is called or changed.

    Args:
        spec: what `load_spec` takes, or a LoadedSpec.
        model: the model, or several by name.
        given: tensors for edits with `from: {given: NAME}`; None if they are not known yet, so that none is missing.

    Raises:
        SpecError: the spec is not valid.
        PlanError: the spec does not fit the model; every reason is listed.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load_spec(spec)
    trees = {name: Tree(one) for name, one in model.items()} if isinstance(model, Mapping) else {"": Tree(model)}
    chosen = {name: probe for name, probe in loaded.spec.probes.items() if probe.enabled}
    fitting = {name: probe for name, probe in chosen.items() if (probe.model or "") in trees}
    drafts = [ProbeDraft(name, probe, trees[probe.model or ""], loaded, given) for name, probe in fitting.items()]
    bound = [(draft, list(_bindings(draft))) for draft in drafts]
    if any(draft.probe.against is not None for draft in drafts):
        from probes.plan.second_tensor import with_second_tensors

        bound = with_second_tensors(bound)
    check(bound)
    missing = [_no_model(loaded, name, probe, trees) for name, probe in chosen.items() if (probe.model or "") not in trees]
    found = [*missing, *(problem for draft in drafts for problem in draft.problems), *rule_problems(loaded, bound)]
    problems = list(dict.fromkeys(found))  # one for all targets
    if problems:
        raise PlanError(problems)
    return Plan(
        loaded,
        trees,
        tuple(replace(binding, index=index) for index, binding in enumerate(binding for _, bindings in bound for binding in bindings)),
        {draft.name: tuple(draft.dropped) for draft in drafts if draft.dropped},
        tuple(note for draft in drafts for note in draft.notes),
    )


def _no_model(loaded: LoadedSpec, name: str, probe: Probe, trees: Mapping[str, Tree]) -> Problem:
    """The problem that the model of a probe was not given."""
    wanted = probe.model or ""
    said = f"names model `{wanted}`" if wanted else "names no model"
    message = f"probe `{name}` {said}, but the run has {', '.join(f'`{key}`' for key in trees if key) or 'one model without a name'}"
    several = any(trees)
    hint = nearest(wanted, trees) if several else 'remove `model`, or attach to several models: {"NAME": model, ...}'
    return loaded.locate(("probes", name)).at(code="unknown-model", message=message, hint=hint)


def _bindings(draft: ProbeDraft) -> Iterator[Binding]:
    """The bindings of one probe, in the order of the model, then of the values."""
    matched = list(_values(draft))
    expected = draft.probe.expect.matches if draft.probe.expect else None
    count = len({target.path for target in matched})
    if expected is not None and count != expected:
        hint = f"write {count}, or change the globs; `probes plan` without `expect` lists the matches"
        draft.refuse("unexpected-matches", f"matches {count} targets, but `expect.matches` is {expected}", hint, "expect", "matches")
    limit = draft.loaded.spec.limits.matches_per_probe
    if count > limit:
        draft.refuse("too-many-matches", f"matches {count} targets, the limit is {limit}", "narrow it or raise `limits.matches_per_probe`")
        return
    check_operations(draft)
    seen: set[tuple[int, str, str]] = set()
    for target in matched:
        name = (id(target.node.module), target.path if target.root in PARAMETER_ROOTS else "", target.value)
        if name not in seen:
            seen.add(name)
            if target.op:
                check_operation_of(draft, target)
            yield _binding(draft, target)


def _values(draft: ProbeDraft) -> Iterator[MatchedValue]:
    """The values that a probe names: of parameters, of the training loop, or of modules."""
    if draft.probe.tensors:
        return tensor_values(draft)
    if draft.probe.of_loop:
        return (MatchedValue("", draft.tree.root, value.root, value.keys, exact=False) for value in draft.probe.value_paths)
    return module_values(draft)


def _binding(draft: ProbeDraft, target: MatchedValue) -> Binding:
    probe, node = draft.probe, target.node
    source, digest = source_of(draft, target)
    seen = target.seen if target.seen.dtype else Signature(dims=probe.dims)
    stored = _transformed(draft, seen, draft.probe.transforms)
    first = (
        seen
        if draft.probe.against is None or draft.problems
        else _transformed(draft, seen, draft.probe.transforms[: _compared(draft.probe)])
    )
    check_conditions(draft, target.value, first, stored)
    return Binding(
        index=0,
        name=draft.name,
        probe=probe,
        target=target.path,
        module=node.path,
        raw=node.raw,
        aliases=draft.tree.aliases(node),
        kind=node.kind,
        exact=target.exact,
        root=target.root,
        keys=target.keys,
        stored=stored,
        op=target.op,
        source=source,
        source_blake3=digest,
        given=(given := given_of(draft)),
        given_blake3={name: digest_of(tensor) for name, tensor in given.items()},
    )


def _compared(probe: Probe) -> int:
    """The number of transforms of a probe up to and including the comparison; 0 without one."""
    return next((index + 1 for index, one in enumerate(probe.transforms) if isinstance(one, TensorComparison)), 0)


def _transformed(draft: ProbeDraft, signature: Signature, transforms: Sequence[Transform]) -> Signature:
    for index, transform in enumerate(transforms):
        try:
            signature = transform.out(signature)
        except SignatureError as error:
            draft.refuse("transform-does-not-fit", f"transform `{transform.kind}`: {error}", "", "transforms", index)
            return Signature()
    return signature
