"""The difference of two runs, as values; this module neither reads nor prints."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from probes.clock import Clock, SeriesKey
from probes.printable import html_table, one_line


@dataclass(frozen=True, repr=False)
class Divergence:
    """One capture that differs between the runs.

    Attributes:
        key: the series, as the first run names it.
        clock: where the capture is.
        order: how many captures of the first run were taken before it in its step; `UNKNOWN_ORDER` if its file does not say so.
        dtype: torch's name, without prefix.
        shape: sizes of the capture.
        index: the first element that differs.
        a: its value in the first run, in the fewest digits that tell it from its neighbours.
        b: its value in the second run.
        bits_a: its bits in the first run, hexadecimal.
        bits_b: its bits in the second run.
        ulp: how many representable numbers apart the two are; None for what is not a floating point number.
        elements: how many elements differ.
        max_abs: largest absolute difference.
        max_rel: largest difference relative to the first run.
        max_ulp: largest distance in representable numbers.
        cosine: cosine of the two captures; None if one is zero or not finite.
    """

    key: SeriesKey
    clock: Clock
    order: int
    dtype: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    a: str
    b: str
    bits_a: str
    bits_b: str
    ulp: int | None
    elements: int
    max_abs: float
    max_rel: float
    max_ulp: int | None
    cosine: float | None

    def __repr__(self) -> str:
        place = f"epoch {self.clock.epoch}, step {self.clock.step}, at {list(self.index)}"
        return one_line(f"<Divergence {self.key}: {place}: {self.a} | {self.b}>")

    def _repr_html_(self) -> str:
        return html_table(("Divergence", ""), [(field.name, getattr(self, field.name)) for field in fields(self)])


@dataclass(repr=False)
class SeriesDifference:
    """The result of the comparison of one series.

    Attributes:
        key: the series, as the first run names it; for an extra one as the second does.
        other: its name in the second run, if that differs.
        compared: captures that both runs have and that can be compared.
        by_digest: how many of them were compared by the digests that the files state, without reading the values.
        contradicting: captures whose values differ although their recorded digests agree, so that one of the files was changed.
        unscaled: how many of them were compared without their loss scales, because these differ.
        within: captures that differ, but not beyond the tolerance.
        different: captures that differ.
        missing: captures that only the first run has.
        extra: captures that only the second run has.
        incomparable: captures of another dtype or shape.
        reason: why captures cannot be compared, for the first of them.
        gap: clock of the first capture that only one run has.
        first: the first capture that differs.
        max_abs: largest absolute difference of all captures.
        max_rel: largest difference relative to the first run.
        max_ulp: largest distance in representable numbers.
    """

    key: SeriesKey
    other: SeriesKey | None = None
    compared: int = 0
    by_digest: int = 0
    contradicting: int = 0
    unscaled: int = 0
    within: int = 0
    different: int = 0
    missing: int = 0
    extra: int = 0
    incomparable: int = 0
    reason: str = ""
    gap: Clock | None = None
    first: Divergence | None = None
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int = 0

    def __repr__(self) -> str:
        return one_line(f"<SeriesDifference {self.key}: {self.status}, {self.compared} compared>")

    def _repr_html_(self) -> str:
        return html_table(("SeriesDifference", ""), [(field.name, getattr(self, field.name)) for field in fields(self)])

    @property
    def status(self) -> str:
        """The worst result: different, incomparable, missing, extra, within or same."""
        found = (name for name in ("different", "incomparable", "missing", "extra", "within") if getattr(self, name))
        return next(found, "same")

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return plain({"status": self.status, **asdict(self), "first": divergence_dict(self.first)})


@dataclass(frozen=True)
class ProvenanceDifference:
    """One difference in the provenance of two runs.

    Attributes:
        place: dotted path in the manifest.
        a: what the first run says.
        b: what the second run says.
        note: what to know about it; empty if it needs no remark.
    """

    place: str
    a: str
    b: str
    note: str = ""


@dataclass(frozen=True)
class GapDifference:
    """Captures that one run states as missing, and the other does not.

    Attributes:
        epoch: number of the epoch.
        key: the series, as the run names it.
        reason: why the captures are not there.
        a: how many the first run says it lacks.
        b: how many the second.
    """

    epoch: int
    key: SeriesKey
    reason: str
    a: int
    b: int


@dataclass(frozen=True)
class WeightsDifference:
    """A parameter or buffer whose content differs at the end of an epoch.

    Attributes:
        epoch: number of the first epoch at whose end any tensor differs.
        model: name of the model; empty if there is only one.
        tensor: name of the tensor.
        rank: the first rank whose part differs; None if the tensors were compared over all ranks.
        a: its digest, or sum over all ranks, in the first run.
        b: the same in the second.
    """

    epoch: int
    model: str
    tensor: str
    rank: int | None
    a: str
    b: str


@dataclass(frozen=True, repr=False)
class Difference:
    """The difference of two runs.

    Attributes:
        a: the first run, as it was named.
        b: the second run.
        series: what was found of each series, in the plan's order.
        first: the first divergence by clock, then by the plan's order.
        gaps: what the runs say they lack, if they do not agree.
        origins: in what the provenance differs, likely causes first.
        tolerances: the tolerances used, by dtype; dtypes without one were compared bit for bit.
        weights: the tensors that differ at the end of the first epoch at whose end any does, if both runs state their weights.
    """

    a: str
    b: str
    series: tuple[SeriesDifference, ...]
    first: Divergence | None = None
    gaps: tuple[GapDifference, ...] = ()
    origins: tuple[ProvenanceDifference, ...] = ()
    tolerances: dict[str, dict[str, float]] = field(default_factory=dict)
    weights: tuple[WeightsDifference, ...] = ()

    @property
    def verdict(self) -> str:
        """`same`, `different`, or `incomparable` if nothing could be compared that differs."""
        total = self.counts
        weights = self.weights and not self.tolerances  # digests know no tolerance
        if total["different"] or total["missing"] or total["extra"] or self.gaps or weights:
            return "different" if total["compared"] else "incomparable"
        return "incomparable" if total["incomparable"] or not total["compared"] else "same"

    @property
    def same(self) -> bool:
        """Whether captures are the same (bit for bit, within the tolerances, or by digest if those were compared), and weights."""
        return self.verdict == "same"

    @property
    def counts(self) -> dict[str, int]:
        """The number of captures by result."""
        names = ("compared", "by_digest", "contradicting", "within", "different", "missing", "extra", "incomparable")
        return {name: sum(getattr(one, name) for one in self.series) for name in names}

    def __repr__(self) -> str:
        return f'<Difference "{self.a}" and "{self.b}": {self.verdict}>'

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "verdict": self.verdict,
            "a": self.a,
            "b": self.b,
            "counts": self.counts,
            "first": divergence_dict(self.first),
            "tolerances": self.tolerances,
            "gaps": [plain(asdict(one) | {"key": one.key}) for one in self.gaps],
            "weights": [asdict(one) for one in self.weights],
            "origins": [asdict(one) for one in self.origins],
            "series": [one.as_dict() for one in self.series],
        }


def divergence_dict(found: Divergence | None) -> dict[str, Any] | None:
    """A divergence as plain data."""
    return plain({**asdict(found), "key": found.key._asdict(), "clock": found.clock._asdict()}) if found else None


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Convert names to objects, and numbers that JSON does not have to text."""

    def one(value: Any) -> Any:
        if isinstance(value, SeriesKey | Clock):
            return value._asdict()
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {name: one(value) for name, value in data.items()}
