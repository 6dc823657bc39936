"""Captures on an accelerator: copied to pinned memory while the device works, and read at the end of the step.

No hook waits for the device. What is small is gathered there and comes over in one copy; what is large is copied at once,
in the order of the stream, so that a later in-place operation does not reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from probes.tensors import has_memory, is_wrapped

ROOM = 64 << 20
SMALL = 64 * 1024  # for smaller captures, starting a copy costs more than the copy
ALIGNMENT = 64


class ArrivingCapture(Protocol):
    """A capture that is being copied."""

    def store(self, address: int, nbytes: int) -> None:
        """Take the bytes, which are valid for the time of the call."""

    def failed(self, error: Exception) -> None:
        """The bytes do not arrive."""


class Device(Protocol):
    """The operations of an accelerator."""

    def host(self, nbytes: int) -> Tensor:
        """(nbytes,) uint8 on the host that the device can copy to by itself."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Begin to copy from the device; the call does not wait."""

    def mark(self, source: Tensor) -> Callable[[], None]:
        """A function that waits for all work that was queued on the device of `source`."""


class Accelerator:
    """A device that torch knows."""

    def host(self, nbytes: int) -> Tensor:
        """Pinned memory."""
        with torch.inference_mode(mode=False):  # it outlives the call, and is written to in every mode
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """A copy in the current stream."""
        target.copy_(source, non_blocking=True)

    def mark(self, source: Tensor) -> Callable[[], None]:
        """An event in the current stream."""
        event = torch.Event(source.device)
        event.record()
        return event.synchronize


class PendingCopy(NamedTuple):
    """A capture that is being copied.

    Attributes:
        start: offset of its bytes in the pinned memory.
        nbytes: how many there are.
        capture: takes them.
    """

    start: int
    nbytes: int
    capture: ArrivingCapture


class PinnedBuffer:
    """Pinned memory for the captures of a step.

    Args:
        device: the accelerator.
        room: bytes of pinned memory, taken when the first capture comes.

    Attributes:
        early: how often a step had more captures than there is room, so that a hook had to wait for the device.
    """

    def __init__(self, device: Device | None = None, room: int = ROOM) -> None:
        self.device = device or Accelerator()
        self.room = room
        self.early = 0
        self._memory: Tensor | None = None
        self._fill = 0
        self._sent: list[PendingCopy | None] = []  # in the order of the hooks; None means the next of the small captures
        self._small: list[tuple[Tensor, ArrivingCapture]] = []
        self._small_bytes = 0
        self._marks: dict[torch.device, Callable[[], None]] = {}

    def takes(self, tensor: Tensor) -> bool:
        """Whether a tensor is dense memory of an accelerator, and fits."""
        if tensor.is_cpu or type(tensor) is not Tensor or tensor.is_meta or is_wrapped(tensor):
            return False
        dense = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if not dense or tensor.is_conj() or tensor.is_neg() or tensor.nbytes > self.room - ALIGNMENT:
            return False
        return has_memory(tensor)

    def send(self, tensor: Tensor, capture: ArrivingCapture, *, fresh: bool = False) -> None:
        """Start to copy a capture to the host; `drain` stores it.

        Args:
            tensor: dense, on an accelerator, owned by the model; no reference is kept unless it is fresh.
            capture: takes the bytes.
            fresh: whether nobody else will write to the tensor.
        """
        needed = _padded(tensor.nbytes)
        if self._fill + self._small_bytes + needed > self.room:
            self.early += 1
            self.drain()
        if tensor.nbytes < SMALL:
            self._small.append(
                (tensor if fresh and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format), capture)
            )
            self._small_bytes += needed
            self._sent.append(None)
            return
        self._sent.append(self._begin(tensor, capture))

    def _begin(self, tensor: Tensor, capture: ArrivingCapture) -> PendingCopy:
        start, nbytes = self._fill, tensor.nbytes
        self._fill = start + _padded(nbytes)
        self._copy(tensor, start)
        return PendingCopy(start, nbytes, capture)

    def _copy(self, tensor: Tensor, start: int) -> None:
        if self._memory is None:
            self._memory = self.device.host(self.room)
        if tensor.nbytes:
            target = self._memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            self.device.copy(target, tensor)
            self._marks[tensor.device] = self.device.mark(tensor)

    @property
    def waiting(self) -> bool:
        """Whether captures are being copied."""
        return bool(self._sent)

    def drain(self) -> None:
        """Wait for all started copies, and store them in the order of the hooks.

        `failed` is called for a capture that cannot be copied or stored; the others are stored.
        """
        if not self.waiting:
            return
        try:
            sent = self._arrived()
        except Exception as error:  # as in a hook: a failing device must not change training
            lost = [capture for _, capture in self._small] + [one.capture for one in self._sent if one is not None]
            self._clear()
            for capture in lost:
                capture.failed(error)
            return
        base = self._memory.data_ptr() if self._memory is not None else 0
        self._clear()
        for start, nbytes, capture in sent:
            capture.store(base + start, nbytes)

    def _arrived(self) -> list[PendingCopy]:
        """All copied captures, after waiting for the devices."""
        small = iter(self._gathered())
        sent = [one if one is not None else next(small) for one in self._sent]
        for wait in self._marks.values():
            wait()
        return sent

    def _gathered(self) -> list[PendingCopy]:
        """Start to copy the small captures: one copy for each device."""
        found: list[PendingCopy | None] = [None] * len(self._small)
        for device in dict.fromkeys(tensor.device for tensor, _ in self._small):
            own = [(at, tensor, capture) for at, (tensor, capture) in enumerate(self._small) if tensor.device == device]
            packed = torch.cat([tensor.reshape(-1).view(torch.uint8) for _, tensor, _ in own])
            start = self._fill
            self._fill += _padded(packed.nbytes)
            self._copy(packed, start)
            for at, tensor, capture in own:
                found[at] = PendingCopy(start, tensor.nbytes, capture)
                start += tensor.nbytes
        return [one for one in found if one is not None]

    def _clear(self) -> None:
        self._sent, self._small, self._marks = [], [], {}
        self._fill = self._small_bytes = 0


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
