"""The dtypes that an edit with arithmetic takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probes.signature import COMPLEX, FLOATS, Signature, SignatureError

if TYPE_CHECKING:
    from torch import Tensor

COMPUTED = (*FLOATS, *COMPLEX[1:])  # torch has no arithmetic for complex32 on the CPU
HINT = "the result of the edit would have another dtype than the value"


def require_floats(signature: Signature) -> None:
    """Refuse a value that is not of real floats.

    Raises:
        SignatureError: it is of another dtype.
    """
    signature.require(FLOATS, HINT)


def require_numbers(signature: Signature) -> None:
    """Refuse a value that is not of real or complex floats.

    Raises:
        SignatureError: it is of another dtype.
    """
    signature.require(COMPUTED, HINT)


def converted(source: Tensor, value: Tensor) -> Tensor:
    """A source in the dtype and on the device of a value; floats are rounded, and all other numbers stay as they are.

    Raises:
        SignatureError: the dtype of the value cannot hold the numbers of the source.
    """
    if source.dtype is not value.dtype and (source.is_complex() > value.is_complex() or not _holds(value, source)):
        ours, theirs = (str(one.dtype).removeprefix("torch.") for one in (value, source))
        raise SignatureError(f"the source is `{theirs}`, and the value `{ours}`, which cannot hold its numbers; give it as `{ours}`")
    return source.to(value)


def _holds(value: Tensor, source: Tensor) -> bool:
    """Whether the dtype of a value holds the numbers of a source; floats and complex numbers hold all, rounded."""
    import torch

    if value.is_floating_point() or value.is_complex():
        return True
    source = source.detach()
    if source.is_floating_point() and value.dtype is not torch.bool:
        source, limits = source.double(), torch.iinfo(value.dtype)
        if not bool(((source >= float(limits.min)) & (source < float(limits.max + 1))).all()):
            return False
    found = source.to(value.dtype)
    signed = [one for one in (source, found) if one.dtype.is_signed]
    same_signs = len(signed) == 2 or not any(bool((one < 0).any()) for one in signed)
    return same_signs and torch.equal(found.to(source.dtype), source)
