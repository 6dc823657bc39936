"""The keys of a spec, version 1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from probes.component import Edit, Sink, Transform
from probes.printable import counted, html_lines
from probes.record_options import RecordOptions
from probes.spec.kinds import KindOf
from probes.spec.texts import DTYPED, NAMED, Amount, Class, Dims, Dtype, Name, Operations, Pattern, Patterns, Sinks, Tensors, Types, Values
from probes.spec.when import Condition, SpecPart, When
from probes.value_path import LOOP, NATURAL, ValuePath

VERSION = 1
SOURCES = ("step", "series", "run")  # the keys of `against` that say where the tensor is
UPPER, LOWER = ("above", "at_least"), ("below", "at_most")  # bounds of a rule

Transforms = Annotated[tuple[Annotated[Transform, KindOf("transform")], ...], Field(strict=False)]
DEFAULT_RECORD = RecordOptions()
SinkOf = Annotated[Sink | RecordOptions, KindOf("sink")]
Hook = Literal["tensor", "forward", "pre-forward", "backward"]
Stage = Literal["increment", "accumulated", "final"]


class StepRule(SpecPart):
    """The definition of step and epoch, unless the loop states them."""

    step: Annotated[Literal["optimizer", "update", "batch", "forward"], Field(description="what ends a training step")] = "optimizer"
    epoch_steps: Annotated[int | None, Field(ge=1, description="training steps of an epoch, for loops without passes over a loader")] = None
    model: Annotated[Name | None, Field(description="the model whose optimizer counts, if there are several")] = None


class ModelSelector(SpecPart):
    """Selects one of several modules of the same class in a script."""

    class_: Annotated[Class, Field(alias="class", description="class of the model, or one of its base classes")]
    instance: Annotated[int | None, Field(ge=0, description="number of the instance, from 0 in the order of the first calls")] = None
    trained: Annotated[
        Literal[True] | None,
        Field(description="select the instance whose parameters an optimizer updates; the run fails if there is no such update"),
    ] = None
    instances: Annotated[
        Literal["all"] | None,
        Field(description="capture every trained instance, of the first 8 that are called, each one after the first as a separate run"),
    ] = None


def _selector_tag(value: object) -> str:
    """Which member of the union a value of `models` is read as."""
    return "mapping" if isinstance(value, dict | ModelSelector) else "name"


Model = Annotated[
    Annotated[Class, Tag("name")] | Annotated[ModelSelector, Tag("mapping")],
    Discriminator(_selector_tag),
]


class Expect(SpecPart):
    """Conditions; the run fails if one does not hold."""

    matches: Annotated[int | None, Field(ge=1, description="exact number of targets")] = None
    fires: Annotated[
        Literal["each_step", "some"] | None,
        Field(
            description="each_step: each value of each target must be captured in each due step; some: at least one target must fire once"
        ),
    ] = None


class Against(SpecPart):
    """Names the tensor with which each value of the probe is compared: `step`, `series` or `run`."""

    step: Annotated[
        Literal["previous", "first"] | None,
        Field(description="the same value in the due step before, or in the first one of the run"),
    ] = None
    series: Annotated[Name | None, Field(description="a probe of the spec: its value in the same step and call")] = None
    run: Annotated[str | None, Field(min_length=1, description="run directory, relative to the spec: its capture of that clock")] = None
    probe: Annotated[Name | None, Field(description="with `run`: its probe; default: a probe of the same name")] = None
    target: Annotated[
        Pattern | None,
        Field(
            description="with `series` or `run`: its target; default: the same target, or the only one. With `series`, a glob compares "
            "with each match"
        ),
    ] = None

    @property
    def sources(self) -> list[str]:
        """The given keys that say where the tensor is; exactly one is right."""
        return [name for name in SOURCES if getattr(self, name) is not None]


class Probe(SpecPart):
    """One probe: the values to capture or edit, and when."""

    about: Annotated[str, Field(description="description for readers")] = ""
    enabled: Annotated[bool, Field(description="false disables the probe")] = True
    model: Annotated[Name | None, Field(description="name of the model, if the spec has several")] = None
    hook: Annotated[Hook | None, Field(description="kind of hook; default: derived from `values`")] = None
    modules: Annotated[Patterns, Field(description="paths or globs of modules")] = ()
    types: Annotated[
        Types, Field(description="classes; keep only matches of a glob with one of them: bare names, or dotted names of imported modules")
    ] = ()
    exclude: Annotated[Patterns, Field(description="paths or globs to remove from the matches of a glob")] = ()
    tensors: Annotated[Tensors, Field(description="parameters, buffers, or values of modules as module:value")] = ()
    ops: Annotated[
        Operations,
        Field(description="torch functions that the modules call in their own forward, such as softmax, or softmax[0] for the first call"),
    ] = ()
    values: Annotated[
        Values,
        Field(description="value paths such as output.logits or loop.loss; default: output, input, grad_output or grad, by hook"),
    ] = ()
    stage: Annotated[
        Stage | None, Field(description="stage of a parameter's gradient: one backward pass, the sum so far, or as used by the optimizer")
    ] = None
    dims: Annotated[Dims | None, Field(description="names of the axes of the value, before the transforms")] = None
    when: Annotated[When, Field(description="schedule: which steps and calls")] = When()
    where: Annotated[Condition | None, Field(description="condition; only captures for which it holds are kept")] = None
    gather: Annotated[
        Literal["full"] | None,
        Field(
            description="full: put a DTensor together before the transforms, by a collective on all ranks; default: each rank's local part"
        ),
    ] = None
    against: Annotated[
        Against | None, Field(description="second tensor for the transform that compares: of another step, series or run")
    ] = None
    transforms: Annotated[Transforms, Field(description="transforms of the value, in order")] = ()
    sinks: Annotated[Sinks, Field(description="names of sinks; default: all sinks of the spec")] = ()
    expect: Annotated[Expect | None, Field(description="conditions; the run fails if one does not hold")] = None
    sees: Annotated[
        Literal["edited", "original"] | None, Field(description="capture the value after the edits of the spec (default), or before them")
    ] = None
    edit: Annotated[Annotated[Edit, KindOf("edit")] | None, Field(description="replaces the value of the model")] = None

    @property
    def value_paths(self) -> tuple[ValuePath, ...]:
        """The values of the probe; by default the natural one of its hook."""
        if self.values:
            return tuple(ValuePath.parse(text) for text in self.values)
        return (ValuePath(NATURAL[self.hook or "tensor"]),)

    @property
    def of_loop(self) -> bool:
        """Whether the values are logged by the training loop, so that no module or tensor is involved."""
        return bool(self.values) and all(path.root == LOOP for path in self.value_paths)


class Defaults(SpecPart):
    """Defaults of every probe without an edit; a schedule is merged key by key, a list is replaced."""

    when: Annotated[When | None, Field(description="schedule")] = None
    sinks: Annotated[Sinks, Field(description="names of sinks")] = ()
    expect: Annotated[Expect | None, Field(description="conditions; the run fails if one does not hold")] = None


class Rule(SpecPart):
    """A bound of captured numbers. A number that is NaN is out of every bound."""

    about: Annotated[str, Field(description="description for readers")] = ""
    probe: Annotated[Name, Field(description="name of the probe whose captures are checked")]
    targets: Annotated[Patterns, Field(description="paths or globs of its targets; default: all")] = ()
    leaves: Annotated[Patterns, Field(description="paths or globs of its leaves, such as output.0; default: all")] = ()
    number: Annotated[
        str | None,
        Field(
            min_length=1,
            description="label of the numbers to check, such as zeros of `stats`, or the kind of the transform that makes a single "
            "number, such as norm; default: every number of a capture",
        ),
    ] = None
    divided_by: Annotated[
        str | None,
        Field(min_length=1, description="label of the number to divide by, such as count; where it is 0, nothing is checked"),
    ] = None
    above: Annotated[float | None, Field(description="a number above this is out of bounds")] = None
    at_least: Annotated[float | None, Field(description="a number of at least this is out of bounds")] = None
    below: Annotated[float | None, Field(description="a number below this is out of bounds")] = None
    at_most: Annotated[float | None, Field(description="a number of at most this is out of bounds")] = None
    for_: Annotated[int, Field(alias="for", ge=1, description="number of steps in a row out of bounds that break the rule")] = 1
    then: Annotated[
        Literal["note", "stop", "fail"],
        Field(description="note: report it; stop: also stop the training; fail: also end the run with exit code 1"),
    ] = "note"

    @property
    def bounds(self) -> dict[str, float]:
        """The given bounds by key."""
        given = {key: getattr(self, key) for key in (*UPPER, *LOWER)}
        return {key: value for key, value in given.items() if value is not None}

    def __str__(self) -> str:
        words = " or ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in self.bounds.items())
        ratio = f" / {self.divided_by}" if self.divided_by else ""
        name = f"`{self.number}{ratio}` " if self.number else ""
        return f"{name}{words}" + (f" in {self.for_} steps in a row" if self.for_ > 1 else "")


class Limits(SpecPart):
    """Limits of a run."""

    bytes_per_epoch: Annotated[
        Amount, Field(description="maximum size of the captures of an epoch, such as 2 GiB; unlimited: the free disk space")
    ] = None
    buffer_bytes: Annotated[Amount, Field(description="maximum size of the captures that wait in memory, such as 64 MiB")] = 64 << 20
    matches_per_probe: Annotated[int, Field(ge=1, description="maximum number of targets of a probe")] = 500
    on_limit: Annotated[
        Literal["disable", "raise"], Field(description="action at `bytes_per_epoch`: disable captures, or raise an error")
    ] = "disable"


class Provenance(SpecPart):
    """Options of the manifest."""

    weights: Annotated[
        Literal["never", "start", "epochs"],
        Field(description="when to compute digests of the weights: never, at the start, or at the start and the end of each epoch"),
    ] = "start"


class Tolerance(SpecPart):
    """Largest difference of two values that `probes diff` accepts as equal."""

    rtol: Annotated[float, Field(ge=0, description="relative tolerance")] = 0.0
    atol: Annotated[float, Field(ge=0, description="absolute tolerance")] = 0.0


class Spec(SpecPart):
    """The values of a model to capture, the transforms to apply, and the destination of the captures."""

    version: Annotated[Literal[1], Field(description="version of the format")]
    name: Annotated[Name, Field(description="name of the folder of its runs; default: the file name without suffix")] = "spec"
    about: Annotated[str, Field(description="description for readers")] = ""
    models: Annotated[
        dict[str, Model] | None,
        NAMED,
        Field(description="class of each model by name, if the spec has several models; a mapping selects an instance"),
    ] = None
    clock: Annotated[StepRule, Field(description="definition of step and epoch")] = StepRule()
    defaults: Annotated[Defaults | None, Field(description="defaults of every probe without an edit")] = None
    probes: Annotated[dict[str, Probe], NAMED, Field(min_length=1, description="probes by name")]
    allow_edits: Annotated[bool, Field(description="must be true if a probe has an `edit`")] = False
    sinks: Annotated[dict[str, SinkOf], NAMED, Field(description="destinations of captures; default: one hdf5 sink")] = Field(
        default_factory=dict
    )
    rules: Annotated[dict[str, Rule], NAMED, Field(description="bounds of captured numbers, by name")] = Field(default_factory=dict)
    limits: Annotated[Limits, Field(description="limits of a run")] = Limits()
    durability: Annotated[
        Literal["process", "power"], Field(description="event that a committed step survives: a killed process, or also a power loss")
    ] = "process"
    on_error: Annotated[Literal["disable", "raise"], Field(description="action if a probe fails: disable the probe, or raise an error")] = (
        "disable"
    )
    provenance: Annotated[Provenance, Field(description="options of the manifest")] = Provenance()
    tolerance: Annotated[dict[Dtype, Tolerance], DTYPED, Field(description="tolerances of diff and replay, by dtype")] = Field(
        default_factory=dict
    )

    def __repr__(self) -> str:
        return f"<Spec {self.name}: {counted(len(self.probes), 'probe')}>"

    def _repr_html_(self) -> str:
        return html_lines(self.model_dump_json(indent=2, by_alias=True, exclude_none=True, exclude_defaults=True))

    @property
    def model_selectors(self) -> dict[str, ModelSelector]:
        """The module of each model of the spec; empty if the spec names none."""
        return {
            name: model if isinstance(model, ModelSelector) else ModelSelector.model_validate({"class": model})
            for name, model in (self.models or {}).items()
        }

    @property
    def record(self) -> RecordOptions:
        """The options of the record: from the entry of `sinks` for it, else the defaults."""
        return next((options for options in self.sinks.values() if isinstance(options, RecordOptions)), DEFAULT_RECORD)

    @property
    def reading_sinks(self) -> dict[str, Sink]:
        """The entries of `sinks` that get readings, by name: all except the record."""
        return {name: sink for name, sink in self.sinks.items() if isinstance(sink, Sink)}

    def sinks_of(self, probe: str) -> dict[str, Sink]:
        """The sinks that get the readings of a probe; an edit has none."""
        chosen = self.probes[probe].sinks or self.sinks
        return {} if self.probes[probe].edit else {name: sink for name, sink in self.reading_sinks.items() if name in chosen}

    def is_recorded(self, probe: str) -> bool:
        """Whether the captures of a probe are stored: it names the record among its `sinks`, or none is declared."""
        chosen = self.probes[probe].sinks or (*self.sinks,)
        return not chosen or self.probes[probe].edit is not None or not self.reading_sinks.keys() >= {*chosen}
