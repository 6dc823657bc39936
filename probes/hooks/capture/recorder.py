"""The live end of one leaf of a binding: transforms, then bytes into the journal, inside the hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from probes.clock import SeriesKey
from probes.component import Transform, TransformFn
from probes.hooks.capture.account import Account
from probes.hooks.capture.run_state import Moment, Writer
from probes.journal.lane import Lane
from probes.journal.writer import Journal
from probes.signature import Signature
from probes.tensors import DTYPE_NAMES, NotCapturable, components, local, placement, unwrapped

STRIDED = torch.strided
LATE = 1  # journal flag: the capture's step was committed before it arrived


class At(Protocol):
    """The clock a capture carries: the moment itself, or what an armed hook kept of it."""

    epoch: int
    phase: str
    step: int
    microstep: int


def nowhere(*_args: object) -> None:
    """Where captures go before the first descriptor."""
    raise AssertionError("BUG: a capture without a descriptor")


class Pipeline:
    """Transforms in a row, begun once for each (dtype, rank) that a value shows."""

    __slots__ = ("begun", "dims", "signatures", "transforms")

    def __init__(self, transforms: Sequence[Transform], dims: tuple[str, ...] | None) -> None:
        self.transforms = tuple(transforms)
        self.dims = dims
        self.begun: dict[tuple[torch.dtype, int], tuple[TransformFn, ...]] = {}
        self.signatures: dict[tuple[torch.dtype, int], Signature] = {}

    def begin(self, tensor: Tensor) -> tuple[TransformFn, ...]:
        """Begin every transform for tensors of this dtype and rank.

        Raises:
            SignatureError: a transform cannot take such a tensor.
        """
        key = (tensor.dtype, tensor.ndim)
        signature = self.first(tensor)
        work = []
        for transform in self.transforms:
            following = transform.out(signature)  # refuses what the transform cannot take
            work.append(transform.begin(signature))
            signature = following
        self.signatures[key] = signature
        self.begun[key] = tuple(work)
        return self.begun[key]

    def first(self, tensor: Tensor) -> Signature:
        """The signature of a value before the first transform."""
        return Signature(DTYPE_NAMES[tensor.dtype], tuple(tensor.shape), self.dims)

    def __call__(self, tensor: Tensor) -> tuple[Tensor, Signature]:
        """Run the transforms on a tensor that the model owns; the result may share its memory."""
        key = (tensor.dtype, tensor.ndim)
        work = self.begun.get(key) or self.begin(tensor)
        value = tensor.detach()
        kind = value.device.type
        if torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                for step in work:
                    value = step(value)
        else:
            for step in work:
                value = step(value)
        return value, self.signatures[key]


class Recorder:
    """Stores the captures of one leaf of one binding.

    Attributes:
        account: the books of the binding; replaced at every epoch.
        writer: where captures of the current descriptor go, in epochs and phases that are `moment`'s.
        phase: their phase.
        lane: the short way for tensors like the one before, of that writer and phase; None where there is none.
        nbytes: bytes of each.
    """

    __slots__ = (
        "account",
        "add",
        "attrs",
        "coords",
        "descriptor",
        "dims",
        "dtype",
        "key",
        "known",
        "lane",
        "moment",
        "nbytes",
        "phase",
        "pipeline",
        "shape",
        "writer",
    )

    def __init__(
        self,
        key: SeriesKey,
        moment: Moment,
        account: Account,
        transforms: Sequence[Transform],
        dims: tuple[str, ...] | None,
        attrs: dict[str, object],
    ) -> None:
        self.key = key
        self.moment = moment
        self.account = account
        self.attrs = attrs
        self.pipeline = Pipeline(transforms, dims) if transforms else None
        self.dims = dims
        self.coords: Signature | None = None
        self.writer: Writer | None = None
        self.add: Callable[..., None] = nowhere
        self.lane: Lane | None = None
        self.dtype: torch.dtype | None = None
        self.shape: torch.Size | None = None
        self.phase = ""
        self.descriptor = -1
        self.nbytes = 0
        self.known: dict[tuple[object, ...], int] = {}

    def put(self, tensor: Tensor, at: At, call: int, backward: int) -> None:
        """Copy a tensor into the journal before returning.

        Args:
            tensor: any shape, dtype and device, owned by the model; no reference is kept.
            at: the clock that the capture carries.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
        """
        lane = self.lane
        moment = self.moment
        if (
            lane is not None
            and moment.writer is self.writer
            and at.phase == self.phase
            and (at is moment or (at.step == moment.step and at.epoch == moment.epoch))
            and lane(tensor, at.step, at.microstep, call, backward)
        ):
            account = self.account
            account.written += 1
            account.nbytes += self.nbytes
            return
        self.put_any(tensor, at, call, backward)

    def put_any(self, tensor: Tensor, at: At, call: int, backward: int) -> None:
        """Copy a tensor that is unlike the one before, transformed, or late."""
        origin = tensor = unwrapped(tensor)
        if self.pipeline is not None:
            self.refuse_composite(tensor)
            tensor, self.coords = self.pipeline(tensor)
        if self.moment.pinned.takes(tensor):
            self.send(tensor, at, call, backward, fresh=_apart(tensor, origin))
            return
        if (
            not (type(tensor) is Tensor and tensor.is_cpu and tensor.layout is STRIDED and not tensor.is_nested and tensor.is_contiguous())
            or tensor.is_quantized
            or tensor.is_neg()
            or tensor.is_conj()
        ):
            tensor = self.dense(tensor)
        late = self.recall(tensor, at)
        address = tensor.data_ptr()
        nbytes = self.nbytes
        if not address and nbytes:
            raise NotCapturable("no data", "the tensor has a shape but no memory (a fake tensor, or its storage was freed)")
        self.add(self.descriptor, at.step, at.microstep, call, backward, address, nbytes, late)
        account = self.account
        account.written += 1
        account.nbytes += nbytes

    def send(self, tensor: Tensor, at: At, call: int, backward: int, *, fresh: bool) -> None:
        """Begin to bring a tensor over from an accelerator; it is stored when the step ends."""
        late = self.recall(tensor, at)
        add, descriptor, step, microstep = self.add, self.descriptor, at.step, at.microstep

        def store(address: int, nbytes: int) -> None:
            add(descriptor, step, microstep, call, backward, address, nbytes, late)

        self.moment.pinned.send(tensor, store, fresh=fresh)
        self.account.written += 1
        self.account.nbytes += self.nbytes

    def recall(self, tensor: Tensor, at: At) -> int:
        """Make the descriptor of a tensor the current one; the journal's flags of a capture at this clock."""
        moment = self.moment
        live = at is moment  # a value of a forward; the clock of a gradient is that of its arming
        if (
            tensor.shape != self.shape
            or tensor.dtype is not self.dtype
            or moment.writer is not self.writer
            or at.phase != self.phase
            or not (live or at.epoch == moment.epoch)
        ):
            self.describe(tensor, at)
        return 0 if live or (at.step == moment.step and at.epoch == moment.epoch) else LATE

    def refuse_composite(self, tensor: Tensor) -> None:
        """Refuse to transform a tensor that is in several pieces.

        Raises:
            NotCapturable: it is one.
        """
        if type(tensor) is Tensor and tensor.layout is STRIDED and not tensor.is_nested and not tensor.is_quantized:
            return
        found = components(tensor)
        if found is not None:
            raise NotCapturable("no data", f"transforms take dense tensors, and {found}; without `transforms` each of these is captured")

    def dense(self, tensor: Tensor) -> Tensor:
        """The dense tensor on the host whose bytes stand for `tensor`."""
        self.attrs.update(placement(tensor))
        tensor = local(tensor)
        return tensor if tensor.device.type == "cpu" else tensor.cpu()

    def taker(self, writer: Writer) -> Writer:
        """What takes the captures: the journal itself."""
        return writer

    def describe(self, tensor: Tensor, at: At) -> None:
        """Find or write the descriptor of this (phase, dtype, shape).

        Raises:
            NotCapturable: no epoch is open.
        """
        writer = self.moment.writer
        if writer is None:
            raise NotCapturable("filtered", "no epoch is open")
        if writer is not self.writer:
            self.known.clear()
            self.writer = writer
            self.add = self.taker(writer).add
        late_epoch = at.epoch if at.epoch != self.moment.epoch else None
        name = (at.phase, tensor.dtype, tensor.shape, late_epoch)
        if name not in self.known:
            self.known[name] = self.taker(writer).descriptor(
                self.key._replace(phase=at.phase),
                DTYPE_NAMES[tensor.dtype],
                tuple(tensor.shape),
                self.names(tensor),
                dict(self.coords.coords) if self.coords else {},
                self.attrs,
                late_epoch,
            )
        self.descriptor = self.known[name]
        self.nbytes = tensor.nbytes
        # A late capture's descriptor is not remembered as the current one: the clock of the next differs.
        self.dtype, self.shape, self.phase = (tensor.dtype, tensor.shape, at.phase) if late_epoch is None else (None, None, "")
        taker = self.taker(writer)
        # What it takes as it is: not what transforms are for, nor what may be conjugated.
        direct = type(tensor) is Tensor and late_epoch is None and self.pipeline is None and not tensor.is_complex()
        self.lane = taker.lane(self.descriptor, tensor) if direct and isinstance(taker, Journal) else None

    def names(self, tensor: Tensor) -> tuple[str, ...] | None:
        """The names of the stored tensor's axes.

        Raises:
            ValueError: the probe's `dims` do not fit the tensor.
        """
        names = self.coords.dims if self.coords else self.dims
        if names is not None and len(names) != tensor.ndim:
            raise ValueError(
                f"`dims` names {len(names)} axes ({', '.join(names)}), but `{self.key.leaf}` of `{self.key.target}` "
                f"has {tensor.ndim}: {tuple(tensor.shape)}"
            )
        return names


def _apart(tensor: Tensor, origin: Tensor) -> bool:
    """Whether the result of transforms has memory of its own."""
    return tensor is not origin and tensor.untyped_storage().data_ptr() != origin.untyped_storage().data_ptr()
