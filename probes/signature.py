"""Facts on a tensor without the tensor: dtype, shape, names of its axes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from probes.clock import SeriesKey

Coord = tuple[str | float, ...]

UNITS = ("KiB", "MiB", "GiB", "TiB")


class Descriptor(NamedTuple):
    """The common properties of captures of one series, dtype and shape.

    Attributes:
        key: the series.
        dtype: torch's name without prefix.
        shape: sizes of the axes.
        dims: names of the axes, or None.
        coords: labels by axis name.
        attrs: further attributes of the series.
        epoch: of the captures; None if it is the open one.
    """

    key: SeriesKey
    dtype: str
    shape: tuple[int, ...]
    dims: tuple[str, ...] | None
    coords: dict[str, Coord]
    attrs: dict[str, object]
    epoch: int | None = None


class Dtype(NamedTuple):
    """The layout of a torch dtype in bytes.

    Attributes:
        itemsize: bytes of one element.
        numpy: name of the numpy dtype that holds the exact bits, little-endian.
        lanes: how many numpy elements make one element (2 for complex numbers).
    """

    itemsize: int
    numpy: str
    lanes: int = 1


# Names are torch's, without the `torch.` prefix. If numpy has no such type, the bits are stored as unsigned integers.
DTYPES: dict[str, Dtype] = {
    "bool": Dtype(1, "u1"),
    "uint8": Dtype(1, "u1"),
    "uint16": Dtype(2, "u2"),
    "uint32": Dtype(4, "u4"),
    "uint64": Dtype(8, "u8"),
    "int8": Dtype(1, "i1"),
    "int16": Dtype(2, "i2"),
    "int32": Dtype(4, "i4"),
    "int64": Dtype(8, "i8"),
    "float16": Dtype(2, "f2"),
    "float32": Dtype(4, "f4"),
    "float64": Dtype(8, "f8"),
    "bfloat16": Dtype(2, "u2"),
    "float8_e4m3fn": Dtype(1, "u1"),
    "float8_e4m3fnuz": Dtype(1, "u1"),
    "float8_e5m2": Dtype(1, "u1"),
    "float8_e5m2fnuz": Dtype(1, "u1"),
    "float8_e8m0fnu": Dtype(1, "u1"),
    "float4_e2m1fn_x2": Dtype(1, "u1"),
    "complex32": Dtype(4, "f2", 2),
    "complex64": Dtype(8, "f4", 2),
    "complex128": Dtype(16, "f8", 2),
    "quint8": Dtype(1, "u1"),
    "qint8": Dtype(1, "i1"),
    "qint32": Dtype(4, "i4"),
}

FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT8 = tuple(name for name in DTYPES if name.startswith("float8"))
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
COMPLEX = ("complex32", "complex64", "complex128")
REAL_OF = {"complex64": "float32", "complex128": "float64"}  # the dtype of a magnitude


class SignatureError(ValueError):
    """A transform cannot take a value of this signature; the message says why."""


@dataclass(frozen=True)
class Signature:
    """Known facts on a tensor.

    Attributes:
        dtype: torch's name without prefix, or None if only a forward tells.
        shape: sizes, None for a size that is not known; None if even the rank is not known.
        dims: names of the axes, each another; None if nobody named them.
        coords: labels of an axis by its name, such as `stat` -> (`mean`, `std`).
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    dims: tuple[str, ...] | None = None
    coords: dict[str, Coord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dims is not None and len({*self.dims}) < len(self.dims):
            object.__setattr__(self, "dims", distinct(self.dims))

    @classmethod
    def of_axes(cls, dtype: str | None, shape: tuple[int | None, ...] | None, axes: Sequence[tuple[str, Coord | None]]) -> Signature:
        """The signature of axes with names and labels; a name that an earlier axis has gets a number."""
        dims = distinct([name for name, _ in axes])
        return cls(dtype, shape, dims, {name: labels for name, (_, labels) in zip(dims, axes, strict=True) if labels is not None})

    @property
    def ndim(self) -> int | None:
        """Number of axes, or None."""
        if self.shape is not None:
            return len(self.shape)
        return len(self.dims) if self.dims is not None else None

    @property
    def nbytes(self) -> int | None:
        """Bytes of one capture, or None if dtype or a size is not known."""
        if self.dtype is None or self.shape is None or None in self.shape:
            return None
        return DTYPES[self.dtype].itemsize * prod(size for size in self.shape if size is not None)

    @property
    def widened(self) -> str | None:
        """The dtype in which floats are summed: float64 for itself, float32 for shorter ones; None if unknown."""
        return "float32" if self.dtype in ("float16", "bfloat16") else self.dtype

    def axis(self, dim: str | int) -> int:
        """The index of an axis given by name or number.

        Raises:
            SignatureError: the axes have no names, or none of this name or number.
        """
        if self.ndim == 0:
            raise SignatureError(f"axis `{dim}` is requested, but the value has no axes")
        if isinstance(dim, int):
            if self.ndim is not None and not -self.ndim <= dim < self.ndim:
                raise SignatureError(f"axis {dim} is out of range for a value with {self.ndim} axes")
            return dim % self.ndim if self.ndim is not None else dim
        if self.dims is None:
            raise SignatureError(f"axis `{dim}` is named, but the axes of the value have no names; give the probe `dims`")
        if dim not in self.dims:
            raise SignatureError(f"axis `{dim}` is not one of {', '.join(self.dims)}")
        return self.dims.index(dim)

    def axes(self, dims: Sequence[str | int]) -> tuple[int, ...]:
        """The indices of some axes, each given by name or number.

        Raises:
            SignatureError: there is no such axis, or one is given twice.
        """
        found = tuple(self.axis(dim) for dim in dims)
        if len({*found}) < len(found):
            raise SignatureError(f"`dims` names one axis twice: {', '.join(map(str, dims))}")
        return found

    def without(self, dims: Sequence[str | int] | None) -> Signature:
        """The signature without some axes, or without all of them if `dims` is None.

        Raises:
            SignatureError: there is no such axis, or one is given twice.
        """
        if dims is None:
            return Signature(self.dtype, (), None if self.dims is None else ())
        gone = self.axes(dims)
        names = self.dims and tuple(name for at, name in enumerate(self.dims) if at not in gone)
        shape = self.shape and tuple(size for at, size in enumerate(self.shape) if at not in gone)
        return Signature(self.dtype, shape, names, {name: labels for name, labels in self.coords.items() if name in (names or ())})

    def with_axis(self, axis: int, name: str, size: int | None, labels: Coord | None = None) -> Signature:
        """The same with another axis instead of one: of another size, name and meaning."""
        if self.ndim is None:
            return Signature(self.dtype)
        axes = [*self._axes()]
        axes[axis] = (name, labels)
        return self.of_axes(self.dtype, self.shape and (*self.shape[:axis], size, *self.shape[axis + 1 :]), axes)

    def with_first(self, name: str, size: int | None, labels: Coord | None = None) -> Signature:
        """The signature with a new first axis."""
        if self.ndim is None:
            return Signature(self.dtype)
        return self.of_axes(self.dtype, None if self.shape is None else (size, *self.shape), [(name, labels), *self._axes()])

    def _axes(self) -> Iterator[tuple[str, Coord | None]]:
        """Name and labels of each axis; one without a name has its number."""
        for name in self.dims if self.dims is not None else (f"dim_{at}" for at in range(self.ndim or 0)):
            yield name, self.coords.get(name)

    def require(self, dtypes: Collection[str], hint: str) -> None:
        """Check that the dtype, if known, is one of `dtypes`.

        Raises:
            SignatureError: it is another; the message lists what is taken and ends with the hint.
        """
        if self.dtype is not None and self.dtype not in dtypes:
            raise SignatureError(f"`{self.dtype}` is not taken, only {', '.join(dtypes)}; {hint}")

    def replace(self, **changes: object) -> Signature:
        """The same signature with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # dataclasses.replace takes the fields by name

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype or 'unknown'}[{', '.join(self.dims or ['...'])}]"
        names = self.dims or ("",) * len(self.shape)
        sizes = [f"{name}={size if size is not None else '?'}".lstrip("=") for name, size in zip(names, self.shape, strict=True)]
        return f"{self.dtype or 'unknown'}[{', '.join(sizes)}]"


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each another: one that an earlier axis has gets a number, such as `bin_1`."""
    found: list[str] = []
    for name in names:
        free = (f"{name}_{number}" for number in range(1, len(names) + 1) if f"{name}_{number}" not in names)
        found.append(name if name not in found else next(one for one in free if one not in found))
    return tuple(found)


def size(count: int) -> str:
    """A readable number of bytes: `0 B`, `812 B`, `1.5 KiB`, `2.0 GiB`."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(UNITS))
    return f"{count / 1024**power:.1f} {UNITS[power - 1]}"


MEMORY = Signature("int64", (3,), ("memory",), {"memory": ("before", "allocated", "peak")})
"""The signature of the value `memory` of a call."""
