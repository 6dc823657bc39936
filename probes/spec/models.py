"""The spec, version 1: what a person wrote, validated."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from probes.component import Edit, Sink, Transform
from probes.record_options import RecordOptions
from probes.spec.kinds import KindOf
from probes.spec.texts import DTYPED, NAMED, Amount, Class, Dims, Dtype, Name, Patterns, Sinks, Tensors, Types, Values
from probes.spec.when import Part, When
from probes.value_path import NATURAL, ValuePath

VERSION = 1

Transforms = Annotated[tuple[Annotated[Transform, KindOf("transform")], ...], Field(strict=False)]
SinkOf = Annotated[Sink | RecordOptions, KindOf("sink")]
Hook = Literal["tensor", "forward", "pre-forward", "backward"]
Stage = Literal["increment", "accumulated", "final"]


class StepRule(Part):
    """What a step and an epoch are where the loop does not say so itself."""

    step: Annotated[Literal["optimizer", "batch", "forward"], Field(description="what ends a training step")] = "optimizer"
    epoch_steps: Annotated[int | None, Field(ge=1, description="training steps of an epoch, for loops without passes over a loader")] = None
    model: Annotated[Name | None, Field(description="the model whose optimizer counts, where there are several")] = None


class ModelSelector(Part):
    """Which module of a script a model of the spec is, where its class alone does not say so."""

    class_: Annotated[Class, Field(alias="class", description="name of the class, or of one that it is derived from")]
    instance: Annotated[
        int | None, Field(ge=0, description="which instance of the class, counted from 0 in the order of their first calls")
    ] = None
    trained: Annotated[
        Literal[True] | None, Field(description="the instance whose parameters an optimizer steps; without such a step the run fails")
    ] = None
    instances: Annotated[
        Literal["all"] | None, Field(description="record every instance that is trained, the further ones as runs of their own")
    ] = None


def _selector_tag(value: object) -> str:
    """Which member of the union a value of `models` is read as."""
    return "mapping" if isinstance(value, dict | ModelSelector) else "name"


Model = Annotated[
    Annotated[Class, Tag("name")] | Annotated[ModelSelector, Tag("mapping")],
    Discriminator(_selector_tag),
]


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
    types: Annotated[Types, Field(description="classes that a glob's matches must be of: bare names, or dotted ones already imported")] = ()
    exclude: Annotated[Patterns, Field(description="paths or globs that are left out")] = ()
    tensors: Annotated[Tensors, Field(description="parameters, buffers, or values of modules as module:value")] = ()
    values: Annotated[Values, Field(description="value paths such as output.logits; the hook's natural value without them")] = ()
    stage: Annotated[
        Stage | None, Field(description="which gradient of a parameter: of one backward, summed up, or as the optimizer used it")
    ] = None
    dims: Annotated[Dims | None, Field(description="names of the value's axes, before the transforms")] = None
    when: Annotated[When, Field(description="the schedule")] = When()
    transforms: Annotated[Transforms, Field(description="what is done to the value, in order")] = ()
    sinks: Annotated[Sinks, Field(description="names of sinks; all that are declared without it")] = ()
    expect: Annotated[Expect | None, Field(description="what must come true, or the run fails")] = None
    sees: Annotated[Literal["edited", "original"] | None, Field(description="whether the spec's edits are in the captured value")] = None
    edit: Annotated[Annotated[Edit, KindOf("edit")] | None, Field(description="rewrites the value in place of the model's own")] = None

    @property
    def value_paths(self) -> tuple[ValuePath, ...]:
        """The values that are meant, the hook's natural one where none is written."""
        if self.values:
            return tuple(ValuePath.parse(text) for text in self.values)
        return (ValuePath(NATURAL[self.hook or "tensor"]),)


class Defaults(Part):
    """What every probe without an edit starts from; the schedule is merged key by key, lists are replaced."""

    when: Annotated[When | None, Field(description="schedule")] = None
    sinks: Annotated[Sinks, Field(description="names of sinks")] = ()
    expect: Annotated[Expect | None, Field(description="what must come true")] = None


class Limits(Part):
    """Bounds on what a run may take."""

    bytes_per_epoch: Annotated[
        Amount, Field(description="most bytes of captures in an epoch, such as 2 GiB; unlimited means free space only")
    ] = None
    buffer_bytes: Annotated[Amount, Field(description="most bytes that wait in memory, such as 64 MiB")] = 64 << 20
    matches_per_probe: Annotated[int, Field(ge=1, description="most targets of one probe")] = 500
    on_limit: Annotated[Literal["disable", "raise"], Field(description="what happens at `bytes_per_epoch`")] = "disable"


class Provenance(Part):
    """What is written down of where the run comes from."""

    weights: Annotated[Literal["never", "start", "epochs"], Field(description="when the weights are digested")] = "start"


class Tolerance(Part):
    """How far two values may lie apart for `probes diff` to call them the same."""

    rtol: Annotated[float, Field(ge=0, description="relative tolerance")] = 0.0
    atol: Annotated[float, Field(ge=0, description="absolute tolerance")] = 0.0


class Spec(Part):
    """Which modules and tensors of a model to look at, with which hook, how to transform what it sees, and where to send it."""

    version: Annotated[Literal[1], Field(description="version of the spec's format")]
    name: Annotated[Name, Field(description="name of the run's directory; the file's stem without it")] = "spec"
    about: Annotated[str, Field(description="what the spec is for")] = ""
    models: Annotated[
        dict[str, Model] | None,
        NAMED,
        Field(description="name -> class of each model, if several are probed or several modules fit; or a mapping that says which"),
    ] = None
    clock: Annotated[StepRule, Field(description="what a step and an epoch are")] = StepRule()
    defaults: Annotated[Defaults | None, Field(description="what every probe without an edit starts from")] = None
    probes: Annotated[dict[str, Probe], NAMED, Field(min_length=1, description="the probes by name")]
    allow_edits: Annotated[bool, Field(description="without it any `edit` is refused")] = False
    sinks: Annotated[dict[str, SinkOf], NAMED, Field(description="where captures go; one hdf5 sink without it")] = Field(
        default_factory=dict
    )
    limits: Annotated[Limits, Field(description="bounds on what a run may take")] = Limits()
    durability: Annotated[
        Literal["process", "power"], Field(description="what a committed step survives: a killed process, or a power cut")
    ] = "process"
    on_error: Annotated[Literal["disable", "raise"], Field(description="what happens when a capturing probe fails")] = "disable"
    provenance: Annotated[Provenance, Field(description="what is written down of where the run comes from")] = Provenance()
    tolerance: Annotated[dict[Dtype, Tolerance], DTYPED, Field(description="for diff and replay, by dtype")] = Field(default_factory=dict)

    @property
    def model_selectors(self) -> dict[str, ModelSelector]:
        """Which module each model of the spec is; empty where the spec names none."""
        return {
            name: model if isinstance(model, ModelSelector) else ModelSelector.model_validate({"class": model})
            for name, model in (self.models or {}).items()
        }

    @property
    def record(self) -> RecordOptions:
        """The options of the record: the entry of `sinks` that has them, else the defaults."""
        return next((options for options in self.sinks.values() if isinstance(options, RecordOptions)), RecordOptions())

    @property
    def reading_sinks(self) -> dict[str, Sink]:
        """The entries of `sinks` that get readings, by name: all but the record."""
        return {name: sink for name, sink in self.sinks.items() if isinstance(sink, Sink)}

    def sinks_of(self, probe: str) -> dict[str, Sink]:
        """The sinks that get the readings of a probe; an edit has none."""
        chosen = self.probes[probe].sinks or self.sinks
        return {} if self.probes[probe].edit else {name: sink for name, sink in self.reading_sinks.items() if name in chosen}

    def is_recorded(self, probe: str) -> bool:
        """Whether the captures of a probe are stored: an entry of `sinks` that it names is the record, or none is declared."""
        chosen = self.probes[probe].sinks or (*self.sinks,)
        return not chosen or self.probes[probe].edit is not None or not self.reading_sinks.keys() >= {*chosen}
