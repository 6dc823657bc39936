"""Rules within a probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from probes.component import Accumulation
from probes.module_glob import ModuleGlob
from probes.spec.cross_checks.fault import Fault, Faults, Rules, readable, repeated
from probes.spec.models import Probe
from probes.value_path import HOOK_OF, LOOP, NATURAL, OF_OPTIMIZER, WITHOUT_KEYS, OperationName, Reference, ValuePath


def _place(probe: Probe) -> Faults:
    if probe.modules and probe.tensors:
        message = "a probe cannot have both `modules` and `tensors`"
        yield Fault("two-places", message, ("tensors",), "write two probes", key=True)
    if not probe.modules and not probe.tensors and not probe.of_loop:
        yield Fault("no-place", "the probe has neither `modules` nor `tensors`", (), "add `modules: [...]`", key=True)


def _hook_missing(probe: Probe) -> Faults:
    if probe.hook is None and not probe.values and not probe.tensors:
        hint = f"add `hook:`, one of {', '.join(NATURAL)}"
        yield Fault("no-hook", "the probe has neither `hook` nor `values`", (), hint, key=True)


def _hook_and_place(probe: Probe) -> Faults:
    if probe.hook == "tensor" and probe.modules and not probe.tensors:
        hint = "list parameters, buffers, or values such as fc1:output under `tensors`"
        yield Fault("hook-and-place", "hook `tensor` needs `tensors`, not `modules`", ("hook",), hint)
    if probe.hook not in (None, "tensor") and probe.tensors and not probe.modules:
        hint = "list modules under `modules`, or write `hook: tensor`"
        yield Fault("hook-and-place", f"hook `{probe.hook}` needs `modules`, not `tensors`", ("hook",), hint)


def _parts_of_others(probe: Probe) -> Faults:
    paths = {index: ValuePath.parse(text) for index, text in readable(probe.values)}
    for index, path in paths.items():
        yield from _part_of_another(path, paths.values(), ("values", index))


def _references_to_parts(probe: Probe) -> Faults:
    references = {index: Reference.parse(text) for index, text in readable(probe.tensors) if ":" in text}
    for index, reference in references.items():
        others = [other.value for other in references.values() if other.module == reference.module]
        yield from _part_of_another(reference.value, others, ("tensors", index))


def _part_of_another(path: ValuePath, paths: Iterable[ValuePath], at: tuple[str | int, ...]) -> Faults:
    whole = next((other for other in paths if other != path and _holds(other, path)), None)
    if whole is not None:
        yield Fault("no-effect", f"value `{path}` is part of `{whole}`, which the probe captures already", at, "remove one of the two")


def _holds(whole: ValuePath, part: ValuePath) -> bool:
    """Whether every tensor of `part` is one of `whole`."""
    pairs = zip(whole.keys, part.keys, strict=False)  # deeper keys are within the whole
    return whole.root == part.root and len(whole.keys) <= len(part.keys) and all(key in ("*", other) for key, other in pairs)


def _value_and_hook(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        needs = HOOK_OF[path.root]
        if probe.hook is not None and probe.hook != needs and path.root != LOOP:
            message = f"value `{path}` needs hook `{needs}`, but the probe has `{probe.hook}`"
            yield Fault("hook-and-value", message, ("values", index), "remove `hook`, or write two probes")


def _value_and_place(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path, place = ValuePath.parse(text), ("values", index)
        needs = HOOK_OF[path.root]
        if path.root == LOOP or (probe.hook is not None and probe.hook != needs):
            continue
        if needs != "tensor" and probe.tensors:
            message = f"value `{path}` belongs to a module; parameters have `grad`, `data`, `update` and `state`"
            yield Fault("value-and-place", message, place, "list the module under `modules`, or remove `values`")
        elif needs == "tensor" and not probe.tensors:
            message = f"value `{path}` belongs to a parameter or a buffer"
            yield Fault("value-and-place", message, place, "list it under `tensors` instead of `modules`")


def _data_of_reference(probe: Probe) -> Faults:
    reference = next((one for one in probe.tensors if ":" in one), "")
    module, _, value = reference.rpartition(":")
    for index, text in readable(probe.values) if reference else ():
        root = ValuePath.parse(text).root
        if root in OF_OPTIMIZER:
            message = f"`{text}` belongs to a parameter, which an optimizer steps, and `{reference}` is the value of a module"
            yield Fault("value-and-place", message, ("values", index), "list parameters under `tensors`")
        elif root == "data":
            message = f"`data` of `{reference}` is the value of a module, which `modules` and `values` name"
            yield Fault("data-of-value", message, ("values", index), f"write `modules: [{module}]` and `values: [{value}]`")


def _values_of_loop(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        if path.root != LOOP:
            continue
        place = next((key for key in ("modules", "tensors", "hook") if getattr(probe, key)), "")
        if place:
            message = f"value `{path}` is logged by the training loop, and no module or tensor has it"
            yield Fault("value-and-place", message, ("values", index), f"remove `{place}`, or write two probes")
        elif not probe.of_loop:
            message = f"value `{path}` is logged by the training loop, and the other values belong to modules"
            yield Fault("value-and-place", message, ("values", index), "write two probes")
        if probe.has("edit"):
            yield Fault("no-effect", f"`{path}` is logged and cannot be edited", ("values", index), "remove the `edit`")


OPERATION_ROOTS = ("input", "output", "grad_output", "grad_input", "grad_input_total")


def _operations_of_modules(probe: Probe) -> Faults:
    if probe.ops and not probe.modules:
        message = "`ops` selects among the operations of a module's forward, and the probe has no `modules`"
        yield Fault("no-effect", message, ("ops",), "list modules under `modules`", key=True)
    if not probe.ops or not probe.modules:
        return
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        if path.root not in OPERATION_ROOTS and path.root != LOOP:
            message = f"`{path}` is not a value of an operation; allowed: {', '.join(f'`{root}`' for root in OPERATION_ROOTS)}"
            yield Fault("value-and-place", message, ("values", index), "remove `ops`, or write two probes")


def _operations_of_one_name(probe: Probe) -> Faults:
    known: dict[str, list[OperationName]] = {}
    for index, text in readable(probe.ops):
        operation = OperationName.parse(text)
        for other in known.setdefault(operation.name, []):
            if other.path != operation.path:
                message = f"`{operation}` and `{other}` have the same name, and so would their captures"
                yield Fault("no-effect", message, ("ops", index), "write two probes")
            elif other != operation and None in (other.nth, operation.nth):
                whole, part = (other, operation) if other.nth is None else (operation, other)
                yield Fault("no-effect", f"`{part}` is one of the calls of `{whole}`", ("ops", index), "remove one of the two")
        known[operation.name].append(operation)


def _keys_of_value(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        path = ValuePath.parse(text)
        if path.root in WITHOUT_KEYS and path.keys:
            what = "it is three numbers for each call" if path.root == "memory" else "a parameter is one tensor"
            yield Fault("value-keys", f"`{path.root}` has no keys, because {what}", ("values", index), f"write `{path.root}`")


def _edit_of_memory(probe: Probe) -> Faults:
    for index, text in readable(probe.values):
        if ValuePath.parse(text).root == "memory" and probe.has("edit"):
            yield Fault("no-effect", "`memory` is measured and cannot be edited", ("values", index), "remove it, or the `edit`")


def _dims_of_memory(probe: Probe) -> Faults:
    if any(ValuePath.parse(text).root == "memory" for _, text in readable(probe.values)) and probe.dims is not None:
        yield Fault("no-effect", "`dims` has no effect on `memory`, which names its axis itself", ("dims",), "remove it", key=True)


def _stage_of_value(probe: Probe) -> Faults:
    if probe.stage is not None and (not probe.tensors or any(":" in text for _, text in readable(probe.tensors))):
        message = "`stage` has no effect on the value of a module; it selects among gradients of a parameter"
        yield Fault("no-effect", message, ("stage",), "remove it", key=True)


def _stage_of_data(probe: Probe) -> Faults:
    if probe.stage is None or not probe.tensors or any(":" in text for text in probe.tensors):
        return
    if not any(path.root == "grad" for path in probe.value_paths):
        message = f"`stage` has no effect on `{probe.value_paths[0]}`; it selects among gradients"
        yield Fault("no-effect", message, ("stage",), "remove it", key=True)


UNDONE = "remove it, or cancel a default with {from: 0}"


def _calls_of_parameters(probe: Probe) -> Faults:
    calls = probe.when.calls
    if calls is not None and not calls.is_all and probe.tensors and not any(":" in text for text in probe.tensors):
        message = "`calls` has no effect on a parameter, which is not called"
        yield Fault("no-effect", message, ("when", "calls"), UNDONE, key=True)


def _microsteps_of_final(probe: Probe) -> Faults:
    microsteps = probe.when.microsteps
    if microsteps is None or microsteps.is_all:
        return
    if probe.stage == "final":
        message = "`microsteps` has no effect on a final gradient, which is read once, after the optimizer step"
        yield Fault("no-effect", message, ("when", "microsteps"), UNDONE, key=True)
    elif probe.tensors and all(path.root in OF_OPTIMIZER for path in probe.value_paths):
        message = f"`microsteps` has no effect on `{probe.value_paths[0]}`, which is read after the optimizer step"
        yield Fault("no-effect", message, ("when", "microsteps"), UNDONE, key=True)


def _types_of_tensors(probe: Probe) -> Faults:
    if not probe.modules and probe.types:
        yield Fault("no-effect", "`types` has no effect on `tensors`; it selects among modules", ("types",), "remove it", key=True)


def _selection_of_exact(key: str) -> Callable[[Probe], Faults]:
    """The rule that a key which selects among matches needs a glob."""

    def rule(probe: Probe) -> Faults:
        chosen = "modules" if probe.modules else "tensors"
        if (key == "types" and chosen == "tensors") or not getattr(probe, key):
            return
        if not any(_is_glob(text) for text in getattr(probe, chosen)):
            message = f"`{key}` has no effect on exact paths; it selects among the matches of a glob"
            yield Fault("no-effect", message, (key,), f"remove it, or write a glob under `{chosen}`", key=True)

    return rule


def _is_glob(text: str) -> bool:
    return ":" not in text and not ModuleGlob(text).is_exact


def _with_edit(key: str) -> Callable[[Probe], Faults]:
    """The rule that a key of captures has no place in a probe that edits."""

    def rule(probe: Probe) -> Faults:
        if getattr(probe, key) and probe.has("edit"):
            message = f"`{key}` has no effect in a probe with `edit`; a probe either captures or edits"
            yield Fault("no-effect", message, (key,), "write two probes", key=True)

    return rule


def _function_not_last(probe: Probe) -> Faults:
    for index, transform in readable(probe.transforms):
        if transform.kind == "python" and index < len(probe.transforms) - 1:
            message = "`python` must be the last transform, because the dtype and shape of its result are not known before"
            yield Fault("not-last", message, ("transforms", index), "do the rest in the function, or write two probes")


def _second_accumulation(probe: Probe) -> Faults:
    places = [index for index, transform in readable(probe.transforms) if isinstance(transform, Accumulation)]
    for index in places[1:]:
        kind = probe.transforms[index].kind
        message = f"a second accumulation, `{kind}`, has no effect: after the first there is one value for each epoch"
        yield Fault("no-effect", message, ("transforms", index), "write two probes", key=True)


def _trigger_and_edit(probe: Probe) -> Faults:
    if probe.when.has("trigger") and probe.has("edit"):
        message = "`trigger` has no effect in a probe with `edit`: it selects captures, and an edit makes none"
        yield Fault("no-effect", message, ("when", "trigger"), "write two probes", key=True)


def _trigger_and_accumulation(probe: Probe) -> Faults:
    if not probe.when.has("trigger"):
        return
    merged = next((transform.kind for _, transform in readable(probe.transforms) if isinstance(transform, Accumulation)), None)
    if merged is not None:
        message = f"`trigger` has no effect with `{merged}`: it selects single steps, and `{merged}` has one value for each epoch"
        yield Fault("no-effect", message, ("when", "trigger"), "write two probes", key=True)


def _mask_of_a_call(probe: Probe) -> Faults:
    roots = {path.root for path in probe.value_paths}
    reason = "`ops`" if probe.ops else "`tensors`" if probe.tensors else ""
    if not reason and (other := sorted(roots - {"input", "output"})):
        reason = f"`{other[0]}`"
    for index, transform in readable(probe.transforms) if reason else ():
        if getattr(transform, "mask", None) is not None:
            message = f"`mask` is an input of a call of the module, and the value of {reason} does not come with its inputs"
            yield Fault("mask-without-call", message, ("transforms", index, "mask"), "remove it, or capture `input` or `output`", key=True)


def _gather_on_some_ranks(probe: Probe) -> Faults:
    if probe.has("gather") and probe.when.has("ranks"):
        message = (
            "`gather: full` is a collective, in which all ranks take part, and `ranks` leaves some out: they would wait for each other"
        )
        yield Fault("gather-on-some-ranks", message, ("when", "ranks"), "remove it, and read one rank with `.sel(rank=0)`", key=True)


def _mask_of_an_edit(probe: Probe) -> Faults:
    if not probe.has("edit") or probe.edit is None:
        return
    roots = {path.root for path in probe.value_paths}
    paths = probe.edit.input_paths()
    if paths and (probe.ops or probe.tensors or roots - {"input", "output"}):
        other = "`ops`" if probe.ops else "`tensors`" if probe.tensors else f"`{sorted(roots - {'input', 'output'})[0]}`"
        message = f"`{paths[0]}` is an input of a call of the module, and the value of {other} does not come with its inputs"
        yield Fault("mask-without-call", message, ("edit", "at"), "give the mask: `last_of NAME`, and `attach(..., given={NAME: mask})`")


PROBE_RULES: Rules = (
    _gather_on_some_ranks,
    _mask_of_an_edit,
    _mask_of_a_call,
    _place,
    _hook_missing,
    _hook_and_place,
    _parts_of_others,
    _references_to_parts,
    _value_and_hook,
    _value_and_place,
    _data_of_reference,
    _values_of_loop,
    _operations_of_modules,
    _operations_of_one_name,
    _keys_of_value,
    _edit_of_memory,
    _dims_of_memory,
    _stage_of_value,
    _stage_of_data,
    _calls_of_parameters,
    _microsteps_of_final,
    _types_of_tensors,
    _selection_of_exact("types"),
    _selection_of_exact("exclude"),
    _with_edit("transforms"),
    _with_edit("sinks"),
    _with_edit("sees"),
    _with_edit("where"),
    _with_edit("gather"),
    _with_edit("against"),
    _function_not_last,
    _second_accumulation,
    _trigger_and_edit,
    _trigger_and_accumulation,
    *(repeated(key) for key in ("modules", "types", "exclude", "tensors", "ops", "values", "sinks")),
)
