"""Apply a user's function."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from probes.component import Transform, TransformFn
from probes.signature import Signature, SignatureError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def _function(text: str) -> str:
    file, _, name = text.rpartition(":")
    path = PurePosixPath(file)
    if not name.isidentifier() or (file and (path.suffix != ".py" or path.is_absolute() or ".." in path.parts)):
        message = (
            "`{text}` is not a function; write FILE.py:NAME, with a path below the folder of the spec, or the NAME of a given function"
        )
        raise PydanticCustomError("function_name", message, {"text": text})
    return text


class PythonFunction(Transform):
    """Applies a Python function, from a file or from the program, that turns the value into a tensor or a number.

    A file is run only if it is allowed by name: `--allow-code metrics.py`, or `allow_code=["metrics.py"]`. A name without a file is a
    function that the program gives: `functions={"spectral": f}`. The function gets a copy of the value. If it raises, the value is
    skipped. It is the last transform, since the dtype and shape of its result are not known before.
    """

    kind: Literal["python"] = "python"
    function: Annotated[str, AfterValidator(_function)] = Field(description="FILE.py:NAME, relative to the spec, or NAME.")
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of the file; another content is refused. The run records it in any case.",
    )
    _callable: Callable[[Any], Any] | None = PrivateAttr(default=None)

    @property
    def file(self) -> str:
        """The file of the function; empty if the program gives it."""
        return self.function.rpartition(":")[0]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.rpartition(":")[2]

    def bound_to(self, function: Callable[[Any], Any], sha256: str | None) -> PythonFunction:
        """The same transform with its function, and the digest of its source."""
        bound = self.model_copy(update={"sha256": sha256})
        bound._callable = function
        return bound

    def out(self, signature: Signature) -> Signature:
        """The result is not known before the run.

        Raises:
            SignatureError: the function is not there.
        """
        if self._callable is None and self.file:
            raise SignatureError(
                f'"{self.file}" is code, and is run only if it is allowed by name: `--allow-code {self.file}` (`allow_code=`)'
            )
        if self._callable is None:
            raise SignatureError(f'the program gives no function `{self.name}`: `functions={{"{self.name}": f}}`')
        return Signature()

    def begin(self, signature: Signature) -> TransformFn:
        """The function on a copy, without a graph; random numbers that it draws do not change those of the program."""
        import torch

        function = self._callable
        if function is None:
            raise AssertionError("BUG: a function that was not resolved")

        def work(tensor: Tensor) -> Tensor:
            with random_states_kept(tensor.device), torch.no_grad():
                result = function(tensor.clone())
            if isinstance(result, torch.Tensor):
                return result.detach()
            if isinstance(result, bool | int | float):
                return torch.tensor(result, dtype=torch.float64 if isinstance(result, float) else None)
            raise TypeError(f"`{self.name}` returned a {type(result).__name__}; return a tensor or a number")

        return work


@contextmanager
def random_states_kept(device: torch.device) -> Iterator[None]:
    """Restore the states of the generators of Python, of NumPy, and of torch on the CPU and on a device."""
    import numpy
    import torch

    python, arrays = random.getstate(), numpy.random.get_state(legacy=False)
    kind = device.type if device.type in ("cuda", "xpu") else "cuda"
    try:
        with torch.random.fork_rng([device] if device.type == kind else [], device_type=kind):
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
