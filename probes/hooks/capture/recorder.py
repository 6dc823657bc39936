"""The recorder of one leaf of a binding: applies transforms, then writes bytes into the journal, inside the hook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from probes.clock import SeriesKey
from probes.component import Transform
from probes.hooks.capture.account import Account
from probes.hooks.capture.condition_check import ConditionCheck
from probes.hooks.capture.pipeline import Pipeline
from probes.hooks.capture.run_state import LATE, CaptureClock, CaptureWriter, RunState
from probes.hooks.capture.same_kind import Check, never, same_kind_as
from probes.hooks.capture.shard import WHOLE, LocalParts
from probes.signature import Descriptor, Signature
from probes.tensors import DTYPE_NAMES, Composite, NotCapturable, components, has_memory, is_wrapped, local, require_memory, unwrapped

STRIDED = torch.strided
PLAIN = (Tensor, torch.nn.Parameter)


def no_descriptor(*_args: object) -> None:
    """The writer before the first descriptor."""
    raise AssertionError("BUG: a capture without a descriptor")


class Owner(Protocol):
    """The interface of a binding for its recorders."""

    def recorder(self, leaf: str) -> Recorder:
        """The recorder of a leaf."""

    def failed(self, error: Exception, leaf: str, at: CaptureClock) -> None:
        """Count a value that could not be taken."""


Offer = Callable[..., None]
"""Takes a tensor, its clock, call and backward; and if the tensor is a part, what `LocalParts.split` states of it."""


class Recorder:
    """Stores the captures of one leaf of one binding.

    Attributes:
        account: the counters of the binding; replaced at every epoch.
        writer: where captures of the current descriptor go, in the epoch and phase of `state`.
        phase: their phase.
        nbytes: bytes of each.
        is_like_last: whether a tensor has the kind of the last one: it needs no descriptor and no copy.
        owner: the binding that this is a recorder of.
        offer: takes a tensor, and puts it where the probe's `where` says so.
        where: the condition of the probe; None without one, or where its number is elsewhere.
        further_conditions: conditions of other probes on its values.
        transforms: those of the probe.
        sharding: of the tensors of the current descriptor.
    """

    counts = True  # whether a capture counts as written when the writer has it

    __slots__ = (
        "_parts",
        "account",
        "add",
        "attrs",
        "coords",
        "descriptor",
        "dims",
        "further_conditions",
        "is_like_last",
        "key",
        "known",
        "nbytes",
        "offer",
        "owner",
        "phase",
        "pipeline",
        "sharding",
        "state",
        "transforms",
        "where",
        "writer",
    )

    def __init__(
        self,
        key: SeriesKey,
        state: RunState,
        account: Account,
        transforms: Sequence[Transform],
        dims: tuple[str, ...] | None,
        attrs: dict[str, object],
    ) -> None:
        self.key = key
        self.state = state
        self.account = account
        self.attrs = attrs
        self.transforms = tuple(transforms)
        self._parts: LocalParts | None = None
        self.pipeline = Pipeline(transforms, dims) if transforms else None
        self.dims = dims
        self.coords: Signature | None = None
        self.owner: Owner
        self.writer: CaptureWriter | None = None
        self.add: Callable[..., None] = no_descriptor
        self.is_like_last: Check = never
        self.phase = ""
        self.descriptor = -1
        self.nbytes = 0
        self.known: dict[tuple[object, ...], int] = {}
        self.sharding = WHOLE
        self.where: ConditionCheck | None = None
        self.further_conditions: list[ConditionCheck] = []
        self.offer: Offer = self.put

    @property
    def parts(self) -> LocalParts:
        """How distributed tensors are taken."""
        if self._parts is None:
            self._parts = LocalParts(self.transforms)
        return self._parts

    def keep_where(self, where: ConditionCheck) -> None:
        """Put only captures for which a condition holds."""
        self.where = where
        self.offer = self.offer_where

    @property
    def checks(self) -> list[ConditionCheck]:
        """The conditions that are applied to its values."""
        return self.further_conditions if self.where is None else [self.where, *self.further_conditions]

    def filter_by(self, offer: Offer) -> None:
        """Put only captures for which a condition holds."""
        self.offer = offer

    def offer_where(self, tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
        """Put a capture if the condition holds for it, and count it if not; arguments as of `put`."""
        if type(tensor) not in PLAIN:
            tensor, sharding = self.parts.split(tensor)
        if self.where is None or self.where.find(tensor, at.phase) is not None:
            self.put(tensor, at, call, backward, sharding)
        else:
            self.account.skip("filtered")

    def put(self, tensor: Tensor, at: CaptureClock, call: int, backward: int, sharding: Mapping[str, object] = WHOLE) -> None:
        """Copy a tensor into the journal before returning.

        Args:
            tensor: any shape, dtype and device, owned by the model; no reference is kept.
            at: the clock that the capture carries.
            call: call of the module within the outermost call.
            backward: how often this arming has fired before.
            sharding: what `LocalParts.split` states, if `tensor` is a part.
        """
        if type(tensor) not in PLAIN:
            tensor, sharding = self.parts.split(tensor)
        origin = tensor
        if self.pipeline is not None:
            origin = unwrapped(tensor)
            tensor = self.transformed(origin, self.pipeline)
        state = self.state
        address = 0
        # A tensor like the previous one needs no descriptor and no copy.
        if (
            state.writer is self.writer
            and self.is_like_last(tensor)
            and sharding is self.sharding
            and at.phase == self.phase
            and at.epoch == state.epoch
            and (not tensor.storage_offset() or has_memory(tensor))
        ):
            address = tensor.data_ptr()
        if not address:
            if self.pipeline is None and is_wrapped(tensor):
                origin = tensor = unwrapped(tensor)
            pinned = state.pinned if tensor.is_cpu else state.pinned_buffer()
            if pinned is not None and pinned.takes(tensor):
                self.describe(tensor, at, sharding)
                self.is_like_last = never  # it has to pass here again
                pinned.send(tensor, DeviceCapture(self, at, call, backward), fresh=_apart(tensor, origin))
                return
            try:
                tensor = self.dense(tensor)
            except Composite as composite:
                self.put_parts(composite, at, call, backward)
                return
            self.describe(tensor, at, sharding)
            address = tensor.data_ptr()
        opened = at.opened
        self.add(self.descriptor, at.step, at.microstep, call, backward, address, self.nbytes, LATE if opened.over else 0)
        if self.counts:
            account = self.account
            if account.wrote is not opened:
                account.first_of(opened, self.nbytes)
            account.written += 1
            account.nbytes += self.nbytes

    def transformed(self, tensor: Tensor, pipeline: Pipeline) -> Tensor:
        """The result of the transforms, which may share the tensor's memory.

        Raises:
            NotCapturable: the tensor is in several pieces.
        """
        self.refuse_composite(tensor)
        value, self.coords = pipeline(tensor)
        return value

    def put_parts(self, composite: Composite, at: CaptureClock, call: int, backward: int) -> None:
        """Store the pieces of a sparse, nested or quantised tensor, each as a leaf below the tensor's own."""
        for name, part in composite.parts.items():
            piece = self.owner.recorder(f"{self.key.leaf}.{name}")
            piece.attrs["tensor_layout"] = composite.layout
            piece.dims = None
            piece.put(part, at, call, backward)

    def refuse_composite(self, tensor: Tensor) -> None:
        """Refuse to transform a tensor that is in several pieces.

        Raises:
            NotCapturable: it is one.
        """
        if type(tensor) is Tensor and tensor.layout is STRIDED and not tensor.is_nested and not tensor.is_quantized:
            return
        found = components(tensor)
        if found is not None:
            raise NotCapturable("no data", f"transforms take dense tensors, and {found}; remove `transforms` to capture each part")

    def dense(self, tensor: Tensor) -> Tensor:
        """The dense tensor on the host with the bytes of `tensor`; the tensor itself if it is dense and on the host."""
        if (
            type(tensor) is Tensor
            and tensor.is_cpu
            and tensor.layout is STRIDED
            and not tensor.is_nested
            and tensor.is_contiguous()
            and not (tensor.is_quantized or tensor.is_neg() or tensor.is_conj())
        ):
            require_memory(tensor)
            return tensor
        tensor = local(tensor)
        return tensor if tensor.device.type == "cpu" else tensor.cpu()

    def writer_for(self, writer: CaptureWriter) -> CaptureWriter:
        """The writer of the captures: the journal itself."""
        return writer

    def describe(self, tensor: Tensor, at: CaptureClock, sharding: Mapping[str, object] = WHOLE) -> None:
        """Find or write the descriptor of this (phase, dtype, shape, sharding).

        Raises:
            NotCapturable: no epoch is open.
        """
        writer = self.state.writer
        if writer is None:
            raise NotCapturable("filtered", "no epoch is open")
        if writer is not self.writer:
            self.known.clear()
            self.writer = writer
            self.add = self.writer_for(writer).add
        late_epoch = at.epoch if at.epoch != self.state.epoch else None
        name = (at.phase, tensor.dtype, tensor.shape, late_epoch, id(sharding))
        if name not in self.known:
            about = Descriptor(
                self.key._replace(phase=at.phase),
                DTYPE_NAMES[tensor.dtype],
                tuple(tensor.shape),
                self.names(tensor),
                dict(self.coords.coords) if self.coords else {},
                {**self.attrs, **sharding},
                late_epoch,
            )
            self.known[name] = self.writer_for(writer).descriptor(about)
        self.descriptor = self.known[name]
        self.sharding = sharding
        self.nbytes = tensor.nbytes
        self.phase = at.phase
        self.is_like_last = same_kind_as(tensor) if late_epoch is None else never

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


class DeviceCapture:
    """A capture that is being copied from an accelerator; it is stored, and counted, when its bytes have arrived."""

    __slots__ = ("_add", "_at", "_entry", "_flags", "_recorder")

    def __init__(self, recorder: Recorder, at: CaptureClock, call: int, backward: int) -> None:
        self._recorder = recorder
        self._at = at
        self._add = recorder.add
        self._entry = (recorder.descriptor, at.step, at.microstep, call, backward)
        self._flags = LATE if at.opened.over else 0

    def store(self, address: int, nbytes: int) -> None:
        """Write the bytes that have arrived; a failure is counted for the binding of the capture."""
        try:
            self._add(*self._entry, address, nbytes, self._flags)
        except Exception as error:  # as in a hook: a failing disk must not change training
            self.failed(error)
            return
        if self._recorder.counts:
            account = self._recorder.account
            if account.wrote is not self._at.opened:
                account.first_of(self._at.opened, nbytes)
            account.written += 1
            account.nbytes += nbytes

    def failed(self, error: Exception) -> None:
        """Count the capture as lost."""
        self._recorder.owner.failed(error, self._recorder.key.leaf, self._at)


def _apart(tensor: Tensor, origin: Tensor) -> bool:
    """Whether the result of transforms has its own memory."""
    return tensor is not origin and tensor.untyped_storage().data_ptr() != origin.untyped_storage().data_ptr()
