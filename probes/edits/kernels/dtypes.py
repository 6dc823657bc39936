"""The dtypes that an edit with arithmetic takes."""

from __future__ import annotations

from probes.signature import COMPLEX, FLOATS, Signature

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
