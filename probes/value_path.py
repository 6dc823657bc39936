"""Value paths: names of the values that a hook captures, such as `output.logits` or `input.hidden_states`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

ROOTS = ("input", "output", "grad_output", "grad_input", "grad_input_total", "grad", "data", "update", "state", "memory", "loop")

PARAMETER_ROOTS = ("grad", "data", "update", "state")
"""The roots of values that a parameter has."""

OF_OPTIMIZER = ("update", "state")
"""The roots among them that exist after a step of an optimizer."""

WITHOUT_KEYS = ("grad", "data", "update", "memory")
"""The roots of values that are one tensor."""

LOOP = "loop"
"""The root of values that the training loop logs."""

HOOK_OF = {
    "input": "pre-forward",
    "output": "forward",
    "grad_output": "backward",
    "grad_input": "backward",
    "grad_input_total": "backward",
    "grad": "tensor",
    "data": "tensor",
    "update": "tensor",
    "state": "tensor",
    "memory": "forward",
    "loop": "loop",
}
"""The hook kind that sees each root."""

NATURAL = {"forward": "output", "pre-forward": "input", "backward": "grad_output", "tensor": "grad"}
"""The root that a hook kind sees when a probe names no values."""


@dataclass(frozen=True)
class ValuePath:
    """A root and the keys below it.

    Attributes:
        root: one of ROOTS.
        keys: mapping keys, field names, indices or `*`, unquoted.
    """

    root: str
    keys: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ValuePath:
        """Parse `root(.key)*`; a key is a name, an index, `*`, or a text in double quotes.

        Raises:
            ValueError: the text is not a value path.
        """
        root, *keys = split_keys(text)
        if root not in ROOTS:
            raise ValueError(f"`{root}` is not a value; allowed: {', '.join(f'`{one}`' for one in ROOTS)}")
        return cls(root, tuple(keys))

    def __str__(self) -> str:
        return ".".join((self.root, *(key if key == "*" else quoted(key) for key in self.keys)))


@dataclass(frozen=True)
class Reference:
    """A value of a module, such as `features.block2:output`.

    Attributes:
        module: the module's path; empty for the root.
        value: the value path.
    """

    module: str
    value: ValuePath

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse `module:value`, split at the last colon.

        Raises:
            ValueError: there is no colon, or what follows it is not a value path.
        """
        module, colon, value = text.rpartition(":")
        if not colon:
            raise ValueError(f"`{text}` names no value; write `{text}:output`")
        return cls(module, ValuePath.parse(value))


def quoted(key: str) -> str:
    """A key in the form of a value path: in double quotes unless it is a plain name or index.

    Halves of surrogate pairs, which no file can hold, become escapes.
    """
    key = key.encode("utf-8", "backslashreplace").decode()
    return key if key.replace("_", "a").isalnum() else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def split_keys(text: str) -> list[str]:
    """Split a dotted path into its keys; a key in double quotes may contain anything, with a backslash as escape.

    Raises:
        ValueError: a key is empty, or a quote is not closed.
    """
    keys: list[str] = []
    index = 0
    while True:
        key, index = _quoted(text, index) if text[index : index + 1] == '"' else _plain(text, index)
        keys.append(key)
        if index >= len(text):
            return keys
        if text[index] != ".":
            raise ValueError(f"`{text}` has `{text[index]}` where a dot is expected")
        index += 1


def _plain(text: str, start: int) -> tuple[str, int]:
    end = start
    while end < len(text) and text[end] != ".":
        end += 1
    key = text[start:end]
    if not key:
        raise ValueError(f"`{text}` has an empty key (two dots in a row, or a dot at the start or end)")
    if "[" in key or "]" in key:
        raise ValueError(f"`{text}` has brackets; an index is written as a key: `{text.replace('[', '.').replace(']', '')}`")
    return key, end


def _quoted(text: str, start: int) -> tuple[str, int]:
    index, key = start + 1, ""
    while index < len(text) and text[index] != '"':
        if text[index] == "\\" and index + 1 < len(text):
            index += 1
        key += text[index]
        index += 1
    if index >= len(text):
        raise ValueError(f"`{text}` has a quote that is not closed")
    return key, index + 1


class ForwardSignature(NamedTuple):
    """The parameters of a module's `forward`, which name its inputs.

    Attributes:
        names: the positional parameters, in order.
        rest: the name of `*args`; empty without one.
        known: whether Python knows the signature; it does not for builtins such as `torch.relu`.
    """

    names: tuple[str, ...]
    rest: str
    known: bool = True


def forward_signature(forward: Callable[..., object]) -> ForwardSignature:
    """The signature of the `forward` that a call of a module runs; without names if Python does not know it."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (ValueError, TypeError):
        return ForwardSignature((), "", known=False)
    positional = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return ForwardSignature(tuple(positional), next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), ""))


class NamedInputs(NamedTuple):
    """The parameters of a `forward`, to find the inputs of a call by name.

    Attributes:
        names: its positional parameters.
        rest: name of its `*args`; empty if it has none.
    """

    names: tuple[str, ...]
    rest: str

    @classmethod
    def of(cls, forward: Callable[..., object]) -> NamedInputs:
        """The parameters of a `forward`."""
        signature = forward_signature(forward)
        return cls(signature.names, signature.rest)

    def keys(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Keys with the first one, if it is an index as in `input.0`, replaced by the name of that parameter of `forward`."""
        if not keys or not keys[0].isdigit():
            return keys
        index = int(keys[0])
        if index < len(self.names):
            return (self.names[index], *keys[1:])
        return (self.rest or "args", str(index - len(self.names)), *keys[1:])

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The inputs under the names of `forward`'s parameters; further positional ones under that of `*args`."""
        inputs = dict(zip(self.names, args, strict=False))
        if len(args) > len(self.names):
            inputs[self.rest or "args"] = args[len(self.names) :]
        inputs.update(kwargs)
        return inputs


def value_text(root: str, keys: tuple[str, ...], op: str = "") -> str:
    """A value path as text; of an operation with its name and the number of its call, such as `output.softmax.0` or `input.mul.*.1`."""
    named = OperationName.parse(op) if op else None
    place = () if named is None else (named.name, "*" if named.nth is None else str(named.nth))
    return ".".join((root, *place, *keys))


class OperationName(NamedTuple):
    """A torch function that a spec names, such as `softmax`, `softmax[0]` or `torch.nn.functional.gelu`.

    Attributes:
        path: the name as it is written, without the index.
        nth: which call of it within one call of the module; None for every call.
    """

    path: str
    nth: int | None

    @classmethod
    def parse(cls, text: str) -> OperationName:
        """Parse `NAME` or `NAME[INDEX]`; a name is an identifier, or a dotted path that begins with `torch`.

        Raises:
            ValueError: the text is no such name.
        """
        path, bracket, rest = text.partition("[")
        index = rest.removesuffix("]")
        if bracket and not (rest.endswith("]") and index.isascii() and index.isdigit()):
            raise ValueError(f"`{text}` has no whole number in brackets; `{path}[0]` is the first call of `{path}`")
        parts = path.split(".")
        if not all(part.isidentifier() for part in parts):
            raise ValueError(f"`{text}` is not the name of a function; write a name such as `softmax`, or `torch.nn.functional.gelu`")
        if len(parts) > 1 and parts[0] != "torch":
            raise ValueError(f"`{text}` does not begin with `torch`; write `{parts[-1]}`, or a full path such as `torch.{parts[-1]}`")
        return cls(path, int(index) if bracket else None)

    def __str__(self) -> str:
        return self.path + ("" if self.nth is None else f"[{self.nth}]")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    def leaf(self, value: str, number: int) -> str:
        """The leaf of a value of one call: `output.softmax.0` of `output`, `input.mul.2.0` of `input.0`."""
        root, dot, rest = value.partition(".")
        return f"{root}.{self.name}.{number}{dot}{rest}"
