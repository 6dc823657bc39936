"""The parts of a plan: bindings, each one probe on one value of one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import Tensor

from probes.clock import SeriesKey
from probes.errors import Problem
from probes.plan.tree import Tree
from probes.printable import counted, html_lines, html_table
from probes.reader.run import RunReader
from probes.signature import Signature, size
from probes.spec import LoadedSpec, Probe, Spec
from probes.value_path import HOOK_OF, quoted, value_text


@dataclass(frozen=True)
class SecondTensor:
    """The second tensors of a binding.

    Attributes:
        step: `previous` or `first`; empty if it is not the value of another step.
        series: probe, target and value of the binding whose value it is.
        suffix: its target, if the binding is compared with several; None otherwise.
        run: the run that holds it, with the probe, the target and a digest of its captures roots.
    """

    step: str = ""
    series: tuple[str, str, str] | None = None
    suffix: str | None = None
    run: RunReader | None = None
    probe: str = ""
    target: str = ""
    digest: str = ""

    def __str__(self) -> str:
        if self.series is not None:
            return f"series {self.series[0]}/{self.series[1]}:{self.series[2]}"
        return f"step {self.step}" if self.step else f"run with captures {self.digest[:16]}, {self.probe}/{self.target}"


@dataclass(frozen=True)
class Binding:
    """One probe on one value of one target.

    Attributes:
        index: number of the binding in the plan.
        name: name of the probe.
        probe: the probe as the spec says it.
        target: canonical path of the module; for `grad` and `data` that of the parameter or buffer.
        module: canonical path of the module that the hook sits on, or that owns the tensor.
        raw: the module's path with its wrappers.
        aliases: further canonical paths of the same module.
        kind: class name of the module.
        exact: whether the spec names the target itself, rather than a glob that matches it.
        root: the root of the value path.
        keys: the keys after it.
        stored: what is known about a capture after the transforms.
        op: the operation of the module whose value it is; empty for a value of the module itself.
        source: the tensor that an edit's `from` names, on the host.
        source_blake3: BLAKE3 of its bytes.
        given: further tensors that the program gives to the edit, by name, on the host.
        given_blake3: BLAKE3 of their bytes.
        second: the tensors with which the values are compared.
    """

    index: int
    name: str
    probe: Probe
    target: str
    module: str
    raw: str
    aliases: tuple[str, ...]
    kind: str
    exact: bool
    root: str
    keys: tuple[str, ...]
    stored: Signature
    op: str = ""
    source: Tensor | None = None
    source_blake3: str = ""
    given: Mapping[str, Tensor] = field(default_factory=dict)
    given_blake3: Mapping[str, str] = field(default_factory=dict)
    second: SecondTensor | None = None

    @property
    def model(self) -> str:
        """Name of the model among several, else empty."""
        return self.probe.model or ""

    @property
    def in_each_step(self) -> bool:
        """Whether every due step must have the value: `expect` requires it, or it is absent and the spec names the target itself."""
        fires = self.probe.expect.fires if self.probe.expect else None
        return fires == "each_step" or (fires is None and self.exact)

    @property
    def hook(self) -> str:
        """The kind of hook: `forward`, `pre-forward`, `backward` or `tensor`."""
        return HOOK_OF[self.root]

    @property
    def stage(self) -> str:
        """The stage of a parameter's gradient: `increment`, `accumulated` or `final`; else empty."""
        return (self.probe.stage or "increment") if self.root == "grad" else ""

    @property
    def neutral(self) -> bool:
        """Whether training with the binding is bit-identical to training without it."""
        return self.root != "grad_input" and self.probe.edit is None

    @property
    def seen(self) -> str:
        """The value path of the hook, as text."""
        return value_text(self.root, self.keys, self.op)

    @property
    def value(self) -> str:
        """The value path as text; with several comparison targets, also the target."""
        return self.seen + self.suffix

    @property
    def suffix(self) -> str:
        """The suffix of the binding's leaves: the comparison target, if there are several."""
        return f".vs.{quoted(self.second.suffix)}" if self.second is not None and self.second.suffix is not None else ""

    def when_covers(self, epoch: int, rank: int) -> bool:
        """Whether the binding can be due in an epoch and process."""
        return self.probe.when.covers(epoch, None, rank)

    def key(self, leaf: str, phase: str = "train") -> SeriesKey:
        """The key of the series of one leaf."""
        return SeriesKey(self.name, self.target, leaf + self.suffix, phase)

    def as_dict(self) -> dict[str, object]:
        """Plain data for `probes plan --json` and the manifest."""
        return {
            "probe": self.name,
            "target": self.target,
            "value": self.value,
            "hook": self.hook,
            **({"op": self.op} if self.op else {}),
            "class": self.kind,
            "exact": self.exact,
            "neutral": self.neutral,
            "stored": str(self.stored),
            "bytes": self.stored.nbytes,
            **({"edit": self.probe.edit.model_dump(mode="json", by_alias=True, exclude_none=True)} if self.probe.edit else {}),
            **({"source_blake3": self.source_blake3} if self.source_blake3 else {}),
            **({"given_blake3": dict(self.given_blake3)} if self.given_blake3 else {}),
            **({"against": str(self.second)} if self.second else {}),
            **({"against_blake3": self.second.digest} if self.second and self.second.digest else {}),
            **({"stage": self.stage} if self.stage else {}),
            **({"aliases": list(self.aliases)} if self.aliases else {}),
            **({"raw": self.raw} if self.raw != self.module else {}),
            **({"model": self.model} if self.model else {}),
        }


@dataclass(frozen=True, repr=False)
class Plan:
    """A spec resolved against a model: every binding, and what was left out and why.

    Attributes:
        loaded: the spec with its source.
        trees: the module trees at the time of resolving, by the name of the model; `""` if there is one.
        bindings: in the order of the spec, then of the model.
        dropped: probe -> module paths that its globs match but that have no `forward`.
        notes: facts worth knowing that refuse nothing.
    """

    loaded: LoadedSpec
    trees: Mapping[str, Tree]
    bindings: tuple[Binding, ...]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[Problem, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "trees", MappingProxyType(dict(self.trees)))
        object.__setattr__(self, "dropped", MappingProxyType(dict(self.dropped)))

    @property
    def spec(self) -> Spec:
        """The spec."""
        return self.loaded.spec

    @property
    def bytes_per_step(self) -> int | None:
        """Bytes of one capture of every binding, or None if only a forward can tell."""
        sizes = [binding.stored.nbytes for binding in self.bindings]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def __repr__(self) -> str:
        probes = len({binding.name for binding in self.bindings})
        cost = "" if self.bytes_per_step is None else f", {size(self.bytes_per_step)} a step"
        return f"<Plan of {self.spec.name}: {counted(probes, 'probe')}, {counted(len(self.bindings), 'binding')}{cost}>"

    def _repr_html_(self) -> str:
        rows = [(one.name, one.hook, one.target or '""', one.value, one.kind, one.stored) for one in self.bindings]
        notes = [f"note[{note.code}]: {note.message}" for note in self.notes]
        table = html_table(("probe", "hook", "target", "value", "class", "stored"), rows, repr(self)[1:-1])
        return table + (html_lines("\n".join(notes)) if notes else "")

    def as_dict(self) -> dict[str, object]:
        """Plain data for `--json` and the manifest."""
        return {
            "bindings": [binding.as_dict() for binding in self.bindings],
            "dropped": {name: list(paths) for name, paths in self.dropped.items()},
            "notes": [note.as_dict() for note in self.notes],
            "bytes_per_step": self.bytes_per_step,
        }
