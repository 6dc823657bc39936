"""Resolving a spec against a model: patterns to targets, values to hooks, signatures through transforms and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from torch.nn import Module

from probes.component import TensorComparison, Transform
from probes.errors import PlanError, Problem, nearest
from probes.plan.binding import Binding, Plan
from probes.plan.checks import check, check_operation_of, check_operations, rule_problems
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.plan.edit_source import with_edit_tensors
from probes.plan.match_modules import module_values
from probes.plan.match_tensors import tensor_values
from probes.plan.tree import Tree
from probes.signature import Signature, SignatureError
from probes.spec import LoadedSpec, Probe, load_spec
from probes.spec.when import Condition
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
    if draft.probe.ops:
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
    seen = target.seen if target.seen.dtype else Signature(dims=probe.dims)
    stored = _transformed(draft, seen, draft.probe.transforms)
    first = (
        seen
        if draft.probe.against is None or draft.problems
        else _transformed(draft, seen, draft.probe.transforms[: _compared(draft.probe)])
    )
    _check_conditions(draft, target.value, first, stored)
    found = Binding(
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
    )
    return found if probe.edit is None else with_edit_tensors(draft, target, found, probe.edit)


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


def _check_conditions(draft: ProbeDraft, value: str, seen: Signature, stored: Signature) -> None:
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
