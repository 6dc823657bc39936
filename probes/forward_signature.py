"""The parameters of a module's `forward`."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from torch.nn import Module


class ForwardSignature(NamedTuple):
    """The parameters that positional arguments of a call are bound to.

    Attributes:
        names: the positional parameters, in order.
        rest: the name of `*args`; empty without one.
        known: whether Python knows the signature; it does not for builtins such as `torch.relu`.
    """

    names: tuple[str, ...]
    rest: str
    known: bool = True


def forward_signature(module: Module) -> ForwardSignature:
    """The signature of the `forward` that a call of the module runs; without names where Python does not know it."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (ValueError, TypeError):
        return ForwardSignature((), "", known=False)
    positional = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return ForwardSignature(tuple(positional), next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), ""))
