"""Accumulate statistics over an epoch without storing its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from probes.component import Accumulation, StepSamples, TransformFn
from probes.signature import FLOATS, INTEGERS, Signature, SignatureError
from probes.transforms.kernels.mask import Mask, labels_of, masked, require_reduced
from probes.value_path import ValuePath

if TYPE_CHECKING:
    from torch import Tensor

TOPK = ("value", "id", "step", "row")
SUMS = ("count", "nonfinite", "sum")
MOMENTS = ("count", "nonfinite", "mean", "variance", "min", "max")
COVARIANCE = ("count", "nonfinite", "mean")
MOST_FEATURES = 1024


MOST_LABELS = 4096
LOGGED = "loop."  # prefix of labels that the program logs
NEEDED = {"topk": ("size",), "sums": ("by", "labels")}
OPTIONS = {
    "size": ("topk",),
    "by": ("sums",),
    "labels": ("sums",),
    "dims": ("moments", "covariance"),
    "mask": ("moments", "covariance"),
}
"""The statistics for which each option has an effect."""


def _labels_path(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        path = ValuePath.parse(text)
    except ValueError as error:
        raise PydanticCustomError("value_path", "{why}", {"why": str(error)}) from None
    if path.root not in ("input", "loop") or not path.keys or (path.root == "loop" and len(path.keys) > 1):
        message = "`by` must be an input of the same call, such as `input.labels`, or a logged value, such as `loop.labels`, got `{text}`"
        raise PydanticCustomError("value_path", message, {"text": text, "hint": "write `input.NAME` or `loop.NAME`"})
    return str(path)


class Accumulate(Accumulation):
    """Computes statistics over all values of an epoch, in float64, and stores one capture for each phase at the end of the epoch.

    Axes that are not in `dims` remain, after a new axis `stat`. `moments` are count, nonfinite, mean, variance, min and max at each
    position; `covariance` of one remaining axis is a row of counts, a row of nonfinite, a row of means, then the matrix. `count` is the
    number of finite elements (for a covariance: of samples whose elements are all finite), `nonfinite` the number left out; variance
    and covariance divide by the count (population), and are NaN if it is 0. The counts serve to merge two captures.

    `topk` are the `size` largest values of each unit, NaN first, with their samples: the id (`run.steps(loader, ids=...)`; NaN if it is
    not an integer), the step, and the row within the step. `sums` are count, nonfinite and sum for each label, in float64. For both, the
    first axis is that of the samples, and all others are units. For labels of tokens put `einops` with the pattern
    `batch token unit -> (batch token) unit` before it; then labels of the shape (batch, token) fit.

    For one value, the error of mean is less than 2**-40 of the standard deviation and 2**-52 of itself, that of variance less than
    2**-39 of itself; each merge adds rounding errors of float64. Counts and extremes are exact. The number of threads does not matter.
    The capture has the clock of the last step in it. Steps that failed are not in it; an epoch that was killed has no capture.
    """

    kind: Literal["accumulate"] = "accumulate"
    what: Literal["moments", "covariance", "topk", "sums"] = Field(default="moments", description="Statistics to compute.")
    dims: tuple[str | int, ...] | None = Field(
        default=None,
        description="Names or numbers of the axes to reduce, in addition to time; default: all; `[]`: time alone.",
    )
    mask: Mask = None
    size: int | None = Field(default=None, gt=0, description="With `topk`: number of samples to keep of each unit.")
    by: Annotated[str | None, AfterValidator(_labels_path)] = Field(
        default=None,
        description="With `sums`: labels of the samples: an input of the call, such as input.labels, or logged, such as loop.labels.",
    )
    labels: int | None = Field(
        default=None, gt=0, le=MOST_LABELS, description="With `sums`: number of labels; labels are 0 to `labels` - 1."
    )

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        for key, what in OPTIONS.items():
            given = getattr(self, key) is not None
            if given and self.what not in what:
                raise PydanticCustomError(
                    "no_effect", "`{key}` has no effect with `what: {what}`", {"key": key, "what": self.what, "at": (key,)}
                )
            if not given and key in NEEDED.get(self.what, ()):
                context = {"key": key, "what": self.what, "hint": f"add `{key}:`"}
                raise PydanticCustomError("missing_key", "`what: {what}` needs `{key}`", context)
        return self

    def out(self, signature: Signature) -> Signature:
        """Predict a new axis `stat`, then the axes that remain.

        Raises:
            SignatureError: the value is not of real numbers, there is no such axis, or not exactly one axis remains for a covariance.
        """
        signature.require(("bool", *INTEGERS, *FLOATS), "put `abs` or `cast` before it, to get real numbers")
        if self.what in NEEDED:
            return self._of_samples(signature)
        require_reduced(signature, self.mask, self.dims)
        rest = signature.without(self.dims)
        if self.what == "covariance":
            return _matrix(rest, self.dims)
        return rest.replace(dtype="float64").with_first("stat", len(MOMENTS), MOMENTS)

    def begin(self, signature: Signature) -> TransformFn:
        """The statistics of one value; `merge` combines them with those of others."""
        if self.what in NEEDED:
            return self._begin_samples()
        from probes.transforms.kernels.accumulation import covariance, moments

        gone = signature.axes(self.dims) if self.dims is not None else tuple(range(signature.ndim or 0))
        kept = tuple(at for at in range(signature.ndim or 0) if at not in gone)
        kernel = moments if self.what == "moments" else covariance

        def work(tensor: Tensor) -> Tensor:
            sizes = [tensor.shape[at] for at in kept]
            rows = tensor.permute((*gone, *kept)).reshape(_count(tensor, gone), *sizes)
            return kernel(rows)

        return masked(work, self.mask, gone)

    def _of_samples(self, signature: Signature) -> Signature:
        """The signature of `topk` and `sums`."""
        if signature.ndim == 0:
            raise SignatureError(f"`{self.what}` needs an axis of samples, and the value has no axes")
        rest = (signature.without([0]) if signature.ndim is not None else Signature()).replace(dtype="float64")
        if self.what == "topk":
            return rest.with_first("top", self.size).with_first("stat", len(TOPK), TOPK)
        labels = tuple(map(str, range(self.labels or 0)))
        return rest.with_first("label", self.labels, labels).with_first("stat", len(SUMS), SUMS)

    def _begin_samples(self) -> TransformFn:
        """The part of a value to keep until its step is committed; if labels are logged, the value itself."""
        from probes.transforms.kernels.samples import largest, sums_by_label

        by, size, labels = self.by or "", self.size or 0, self.labels or 0
        if self.what == "topk":
            return lambda tensor: largest(tensor, size)
        if by.startswith(LOGGED):
            return lambda tensor: tensor.double()
        return lambda tensor: sums_by_label(tensor, labels_of(by), labels)

    def rows_of(self, result: Tensor) -> int:
        """The samples of `topk` and `sums`."""
        from probes.transforms.kernels.samples import rows_of_largest

        return rows_of_largest(result) if self.what == "topk" else len(result) if self.what == "sums" else 0

    def placed(self, result: Tensor, samples: StepSamples) -> Tensor:
        """The result with the ids of its samples, or the sums by labels that the program has logged in the step.

        Raises:
            ValueError: the program has logged no labels, or not one for each sample.
        """
        from probes.transforms.kernels.samples import sums_by_label, with_samples

        if self.what == "topk":
            return with_samples(result, samples.step, samples.first_row, samples.ids if len(samples.ids) == samples.rows else ())
        by = self.by or ""
        if not by.startswith(LOGGED):
            return result
        name = by.removeprefix(LOGGED)
        if name not in samples.logged:
            raise ValueError(f"the program logged no `{by}` in the step: `run.log({name}=...)`")
        labels = samples.logged[name]
        if len(labels) not in (len(result), samples.rows):
            raise ValueError(
                f"`{by}` has {len(labels)} labels in the step, and the value {samples.rows} samples; "
                "for labels of tokens, make each a sample: "
                "`{kind: einops, pattern: 'batch token unit -> (batch token) unit'}`"
            )
        own = labels if len(labels) == len(result) else labels[samples.first_row : samples.first_row + len(result)]
        return sums_by_label(result, own, self.labels or 0)

    def merge(self, earlier: Tensor, later: Tensor) -> Tensor:
        """The statistics of both, as in Chan, Golub and LeVeque."""
        if self.what == "sums":
            return earlier + later
        if self.what == "topk":
            from probes.transforms.kernels.samples import merge_largest

            return merge_largest(earlier, later)
        from probes.transforms.kernels.accumulation import merge

        return merge(earlier, later, covariance=self.what == "covariance")


def _count(tensor: Tensor, axes: tuple[int, ...]) -> int:
    found = 1
    for axis in axes:
        found *= tensor.shape[axis]
    return found


def _matrix(rest: Signature, dims: tuple[str | int, ...] | None) -> Signature:
    """The signature of a covariance.

    Raises:
        SignatureError: not exactly one axis remains, or it is too long.
    """
    if dims is None or (rest.ndim is not None and rest.ndim != 1):
        stays = "none" if dims is None else str(rest.ndim)
        raise SignatureError(f"a covariance needs exactly one remaining axis, and {stays} would remain; name all others in `dims`")
    size = rest.shape[0] if rest.shape is not None else None
    if (size or 0) > MOST_FEATURES:
        raise SignatureError(
            f"a covariance of {size} features is too large, the limit is {MOST_FEATURES}; put `project` or `sample` before it"
        )
    if rest.ndim is None:
        return Signature("float64")
    labels = None if size is None else (*COVARIANCE, *map(str, range(size)))
    found = rest.replace(dtype="float64", shape=(size,))
    return found.with_first("stat", None if size is None else len(COVARIANCE) + size, labels)
