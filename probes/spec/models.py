"""The spec, version 1: what a person wrote, validated."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Edit, Sink, Transform
from probes.pattern import Pattern, PatternError
from probes.signature import DTYPES
from probes.spec.amount import Amount
from probes.spec.kinds import KindOf
from probes.spec.when import Names, Part, When
from probes.value import HOOK_OF, NATURAL, Reference, ValuePath

VERSION = 1


def _pattern(text: str) -> str:
    if any(mark in text for mark in ("^", "$", "(", ")", "+", "|")):
        raise PydanticCustomError("pattern", "'{text}' has regex characters; patterns are globs such as encoder.layers.*", {"text": text})
    try:
        Pattern(text)
    except PatternError as error:
        raise PydanticCustomError("pattern", "{why}", {"why": str(error)}) from None
    return text


def _tensor(text: str) -> str:
    if ":" not in text:
        return _pattern(text)
    try:
        reference = Reference.parse(text)
    except ValueError as error:
        raise PydanticCustomError("value_path", "{why}", {"why": str(error)}) from None
    return f"{_pattern(reference.module)}:{reference.value}"


def _value(text: str) -> str:
    try:
        return str(ValuePath.parse(text))
    except ValueError as error:
        raise PydanticCustomError("value_path", "{why}", {"why": str(error)}) from None


def _name(text: str) -> str:
    if not (text[:1].isascii() and text[:1].isalpha() and all(c.isascii() and (c.isalnum() or c in "_-") for c in text) and len(text) <= 64):
        message = "name '{text}' may hold only letters, digits, _ and -, must start with a letter and has at most 64 characters"
        raise PydanticCustomError("name", message, {"text": text})
    return text


Name = Annotated[str, AfterValidator(_name)]
Patterns = Annotated[tuple[Annotated[str, AfterValidator(_pattern)], ...], Field(strict=False)]
Tensors = Annotated[tuple[Annotated[str, AfterValidator(_tensor)], ...], Field(strict=False)]
Values = Annotated[tuple[Annotated[str, AfterValidator(_value)], ...], Field(strict=False)]
Dims = Annotated[tuple[Name, ...], Field(strict=False)]
Transforms = Annotated[tuple[Annotated[Transform, KindOf("transform")], ...], Field(strict=False)]
Hook = Literal["tensor", "forward", "pre-forward", "backward"]
Stage = Literal["increment", "accumulated", "final"]


class Clock(Part):
    """What a step and an epoch are where the loop does not say so itself."""

    step: Annotated[Literal["optimizer", "batch", "forward"], Field(description="what ends a training step")] = "optimizer"
    epoch_steps: Annotated[int | None, Field(ge=1, description="training steps of an epoch, for loops without passes over a loader")] = None
    model: Annotated[Name | None, Field(description="the model whose optimizer counts, where there are several")] = None


class Expect(Part):
    """What must come true, or the run fails."""

    matches: Annotated[int | None, Field(ge=1, description="exact number of targets")] = None
    fires: Annotated[Literal["each_step", "some"] | None, Field(description="whether each target must fire on each due step")] = None


class Probe(Part):
    """One probe: where to look, at what, when, and what to do with it."""

    about: Annotated[str, Field(description="a sentence for the reader")] = ""
    enabled: Annotated[bool, Field(description="false switches the probe off")] = True
    model: Annotated[Name | None, Field(description="which of several models")] = None
    hook: Annotated[Hook | None, Field(description="the kind of hook; follows from `values` where these stand")] = None
    modules: Annotated[Patterns, Field(description="paths or globs of modules")] = ()
    types: Annotated[Names, Field(description="classes that a glob's matches must be of: bare names, or dotted ones already imported")] = ()
    exclude: Annotated[Patterns, Field(description="paths or globs that are left out")] = ()
    tensors: Annotated[Tensors, Field(description="parameters, buffers, or values of modules as module:value")] = ()
    values: Annotated[Values, Field(description="value paths such as output.logits; the hook's natural value without them")] = ()
    stage: Annotated[Stage | None, Field(description="which gradient of a parameter: of one backward, summed up, or as the optimizer used it")] = None
    dims: Annotated[Dims | None, Field(description="names of the value's axes, before the transforms")] = None
    when: Annotated[When, Field(description="the schedule")] = When()
    transforms: Annotated[Transforms, Field(description="what is done to the value, in order")] = ()
    sinks: Annotated[Annotated[tuple[Name, ...], Field(strict=False)], Field(description="names of sinks; all that are declared without it")] = ()
    expect: Annotated[Expect | None, Field(description="what must come true, or the run fails")] = None
    sees: Annotated[Literal["edited", "original"] | None, Field(description="whether the spec's edits are in the captured value")] = None
    edit: Annotated[Annotated[Edit, KindOf("edit")] | None, Field(description="rewrites the value in place of the model's own")] = None

    @property
    def value_paths(self) -> tuple[ValuePath, ...]:
        """The values that are meant, the hook's natural one where none is written."""
        if self.values:
            return tuple(ValuePath.parse(text) for text in self.values)
        return (ValuePath(NATURAL[self.hook or "tensor"]),)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for check in (_place, _hook_and_values, _tensor_fields, _effects):
            check(self)
        return self


def _fault(code: str, message: str, *at: str | int, **context: Any) -> PydanticCustomError:
    """A problem at a key of the part that is being validated."""
    return PydanticCustomError(code, message, {"at": at, **context})  # type: ignore[arg-type]  # codes are ours


def _place(probe: Probe) -> None:
    if probe.modules and probe.tensors:
        raise _fault("two_places", "a probe has `modules` or `tensors`, not both; make two probes of it", "tensors")
    if not probe.modules and not probe.tensors:
        raise _fault("no_place", "the probe names no `modules` and no `tensors`, so it looks at nothing")


def _hook_and_values(probe: Probe) -> None:
    if probe.hook is None and not probe.values and not probe.tensors:
        raise _fault("no_hook", "the probe has neither `hook` nor `values`; one of them says what to look at")
    for index, path in enumerate(probe.value_paths if probe.values else ()):
        needs = HOOK_OF[path.root]
        if probe.hook is not None and probe.hook != needs:
            message = "value `{value}` is seen by hook `{needs}`, but the probe says `{hook}`; leave `hook` out, or make two probes of it"
            raise _fault("hook_and_value", message, "values", index, value=str(path), needs=needs, hook=probe.hook)
        if (needs == "tensor") != bool(probe.tensors):
            if probe.tensors:
                message = "value `{value}` belongs to a module; `tensors` have `grad` or `data`"
            else:
                message = "value `{value}` belongs to a parameter; name it under `tensors`"
            raise _fault("value_and_place", message, "values", index, value=str(path))
        if path.root in ("grad", "data") and path.keys:
            raise _fault("value_keys", "`{root}` has no keys: a parameter is one tensor", "values", index, root=path.root)
    if probe.hook == "tensor" and not probe.tensors:
        raise _fault("hook_and_place", "hook `tensor` looks at `tensors`: a parameter, a buffer, or a value as module:output", "hook")
    if probe.hook not in (None, "tensor") and probe.tensors:
        raise _fault("hook_and_place", "hook `{hook}` looks at `modules`, not `tensors`", "hook", hook=probe.hook)


def _tensor_fields(probe: Probe) -> None:
    if probe.stage is None:
        return
    if not probe.tensors or any(":" in text for text in probe.tensors):
        raise _fault("no_effect", "`stage` has no effect on a module's value; it tells gradients of parameters apart", "stage")
    if not any(path.root == "grad" for path in probe.value_paths):
        raise _fault("no_effect", "`stage` has no effect on `data`; it tells gradients apart", "stage")


def _effects(probe: Probe) -> None:
    gradient = [path for path in probe.value_paths if path.root.startswith("grad")]
    if gradient and len(gradient) == len(probe.value_paths) and "train" not in probe.when.phases:
        raise _fault("no_effect", "gradients are due in phase `train` only, and the schedule leaves it out", "when", "phases")
    if probe.types and not probe.modules:
        raise _fault("no_effect", "`types` has no effect on `tensors`; it is about modules", "types")
    if probe.edit is not None:
        for key, value in (("transforms", probe.transforms), ("sinks", probe.sinks), ("sees", probe.sees)):
            if value:
                raise _fault("no_effect", "`{key}` has no effect beside `edit`; a probe observes or rewrites", key, key=key)
    for key in ("calls", "microsteps"):
        if probe.tensors and not any(":" in text for text in probe.tensors) and key == "calls" and probe.when.calls is not None:
            raise _fault("no_effect", "`calls` has no effect on a parameter, which is not called", "when", "calls")


class Defaults(Part):
    """What every probe without an edit starts from; the schedule is merged key by key, lists are replaced."""

    when: Annotated[When | None, Field(description="schedule")] = None
    sinks: Annotated[Annotated[tuple[Name, ...], Field(strict=False)], Field(description="names of sinks")] = ()
    expect: Annotated[Expect | None, Field(description="what must come true")] = None


class Limits(Part):
    """Bounds on what a run may take."""

    bytes_per_epoch: Annotated[Amount, Field(description="most bytes of captures in an epoch, such as 2 GiB; unlimited means free space only")] = None
    buffer_bytes: Annotated[Amount, Field(description="most bytes that wait in memory, such as 64 MiB")] = 64 << 20
    matches_per_probe: Annotated[int, Field(ge=1, description="most targets of one probe")] = 500
    on_limit: Annotated[Literal["disable", "raise"], Field(description="what happens at `bytes_per_epoch`")] = "disable"


class Provenance(Part):
    """What is written down of where the run comes from."""

    weights: Annotated[Literal["never", "start", "epochs"], Field(description="when the weights are digested")] = "start"


class Tolerance(Part):
    """How far two values may lie apart for `probes diff` to call them the same."""

    rtol: Annotated[float, Field(ge=0, strict=False, description="relative tolerance")] = 0.0
    atol: Annotated[float, Field(ge=0, strict=False, description="absolute tolerance")] = 0.0


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise PydanticCustomError("dtype", "'{name}' is not a dtype; allowed: {known}", {"name": name, "known": ", ".join(DTYPES)})
    return name


class Spec(Part):
    """Which modules and tensors of a model to look at, with which hook, how to transform what it sees, and where to send it."""

    version: Annotated[Literal[1], Field(description="version of the spec's format")]
    name: Annotated[Name, Field(description="name of the run's directory; the file's stem without it")] = "spec"
    about: Annotated[str, Field(description="what the spec is for")] = ""
    models: Annotated[dict[Name, str] | None, Field(description="name -> class of each model, where several are probed")] = None
    clock: Annotated[Clock, Field(description="what a step and an epoch are")] = Clock()
    defaults: Annotated[Defaults | None, Field(description="what every probe without an edit starts from")] = None
    probes: Annotated[dict[Name, Probe], Field(min_length=1, description="the probes by name")]
    allow_edits: Annotated[bool, Field(description="without it any `edit` is refused")] = False
    sinks: Annotated[dict[Name, Annotated[Sink, KindOf("sink")]], Field(description="where captures go; one hdf5 sink without it")] = {}
    limits: Annotated[Limits, Field(description="bounds on what a run may take")] = Limits()
    durability: Annotated[Literal["process", "power"], Field(description="what a committed step survives: a killed process, or a power cut")] = "process"
    on_error: Annotated[Literal["disable", "raise"], Field(description="what happens when a capturing probe fails")] = "disable"
    provenance: Annotated[Provenance, Field(description="what is written down of where the run comes from")] = Provenance()
    tolerance: Annotated[dict[Annotated[str, AfterValidator(_dtype)], Tolerance], Field(description="for diff and replay, by dtype")] = {}

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        _sinks(self)
        _models(self)
        for name, probe in self.probes.items():
            if probe.edit is not None and not self.allow_edits:
                raise _fault("edits_not_allowed", "probe `{name}` rewrites what the model computes; `allow_edits: true` permits it", "probes", name, "edit", name=name)
        if not any(probe.enabled for probe in self.probes.values()):
            raise _fault("all_disabled", "every probe is switched off, so nothing would be captured", "probes")
        return self


def _sinks(spec: Spec) -> None:
    files = [name for name, sink in spec.sinks.items() if sink.kind == "hdf5"]
    if len(files) > 1:
        raise _fault("two_files", "two hdf5 sinks would write the same files; keep `{name}`", "sinks", files[1], name=files[0])
    for name, probe in spec.probes.items():
        for index, sink in enumerate(probe.sinks):
            if sink not in (spec.sinks or {"captures": None}):
                message = "sink `{sink}` is not declared; declared: {known}"
                raise _fault("unknown_sink", message, "probes", name, "sinks", index, sink=sink, known=", ".join(spec.sinks) or "captures")


def _models(spec: Spec) -> None:
    known = spec.models or {}
    for name, probe in spec.probes.items():
        if probe.model is not None and probe.model not in known:
            raise _fault("unknown_model", "model `{model}` is not one of `models`", "probes", name, "model", model=probe.model)
        if spec.models and probe.model is None:
            raise _fault("no_model", "the spec has several models; probe `{name}` must say which", "probes", name, name=name)
    if spec.clock.model is not None and spec.clock.model not in known:
        raise _fault("unknown_model", "model `{model}` is not one of `models`", "clock", "model", model=spec.clock.model)
