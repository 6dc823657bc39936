"""The data source and the order of a DataLoader: fingerprints of its data set, settings and seeds of its sampler."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils.data import Dataset

from probes.digest import blake3_hex, canonical
from probes.provenance.weights_record import tensor_hex
from probes.tensors import NotCapturable

LARGEST_DATA = 256 << 20  # limit of bytes of one data set in memory that are hashed, which takes at most a fifth of a second
LONGEST_LIST = 5_000_000
DEEPEST = 8  # limit of nested data sets
MOST_LOADERS = 64  # limit of different loaders
FINGERPRINTS = ("_fingerprint", "fingerprint")  # the first is that of Hugging Face `datasets`, which follows every transformation
SETTINGS = ("batch_size", "drop_last", "num_samples", "num_replicas", "rank", "replacement", "seed", "shuffle")
NUMBER_KINDS = "biufc"


class SeenLoaders:
    """The different loaders that a program has iterated over, in the order of their first use.

    Attributes:
        records: their descriptions, by digest.
    """

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self._datasets: dict[int, tuple[ref[Any], dict[str, Any]]] = {}

    def see(self, loader: Any) -> None:
        """Describe a loader; reads attributes, and calls no method of the program."""
        if len(self.records) < MOST_LOADERS:
            try:
                found = self._loader(_attributes(loader))
                digest = blake3_hex(canonical(found))
            except Exception as error:  # the attributes are the program's own, and may be anything
                found = {"class": _class(loader), "not_described": type(error).__name__}
                digest = blake3_hex(canonical(found))
            self.records.setdefault(digest, found)

    def _loader(self, own: dict[str, Any]) -> dict[str, Any]:
        batches = own.get("batch_sampler")
        plain = batches is None or type(batches).__module__ == "torch.utils.data.sampler"
        return {
            "dataset": self._dataset(own.get("dataset")),
            **{name: own[name] for name in ("batch_size", "drop_last", "num_workers") if _is_setting(own.get(name))},
            "sampler": _sampler(own.get("sampler") if plain else batches),
            "seed": _seed(own.get("generator")),
        }

    def _dataset(self, dataset: Any, within: tuple[Any, ...] = ()) -> dict[str, Any]:
        """A data set, which is hashed once."""
        if any(one is dataset for one in within):
            return {"class": _class(dataset), "again": True}
        known = self._datasets.get(id(dataset))
        if known is not None and known[0]() is dataset:
            return known[1]
        own = _attributes(dataset)
        found: dict[str, Any] = {"class": _class(dataset)}
        marks = [own[name] for name in FINGERPRINTS if isinstance(own.get(name), str) and len(own[name]) <= 200]
        found |= {"fingerprint": marks[0]} if marks else _content(own)
        inner = [one for value in own.values() for one in (value if type(value) in (list, tuple) else (value,)) if _is_dataset(one)]
        if inner and len(within) < DEEPEST:
            found["of"] = [self._dataset(one, (*within, dataset)) for one in inner[:MOST_LOADERS]]
            found |= {"further": len(inner) - MOST_LOADERS} if len(inner) > MOST_LOADERS else {}
        with suppress(TypeError):  # a list cannot be weakly referenced
            self._datasets[id(dataset)] = ref(dataset), found
        return found


def _content(own: dict[str, Any]) -> dict[str, Any]:
    """Digests of the tensors, arrays and lists of integers that a data set holds, by the names of its attributes."""
    held = {
        name if at is None else f"{name}.{at}": one
        for name, value in own.items()
        for at, one in (enumerate(value) if type(value) is tuple else [(None, value)])
    }
    sizes = {name: _size(one) for name, one in held.items()}
    total = sum(sizes.values())
    if total > LARGEST_DATA:
        return {"not_hashed": f"{total} bytes in memory, more than {LARGEST_DATA}"}
    digests = {name: _digest(held[name]) for name, size in sizes.items() if size}
    return {"content": digests} if digests else {}


def _size(value: Any) -> int:
    """The number of bytes of a value to hash; 0 for other kinds of values, and for values not in CPU memory."""
    if type(value) is Tensor:
        plain = value.device.type == "cpu" and value.layout is torch.strided and not value.is_quantized
        return value.nbytes if plain and value.numel() and value.data_ptr() else 0
    if type(value) is np.ndarray:
        return value.nbytes if value.dtype.kind in NUMBER_KINDS else 0
    whole = type(value) in (list, range) and 0 < len(value) <= LONGEST_LIST and type(value[0]) is int and type(value[-1]) is int
    return 8 * len(value) if whole else 0


def _digest(value: Any) -> str:
    """BLAKE3 of dtype, shape and bytes; integers are of 64 bits."""
    if type(value) is Tensor:
        try:
            return blake3_hex(canonical([str(value.dtype), [*value.shape], tensor_hex(value)]))
        except NotCapturable as error:
            return f"none: {error}"
    try:
        array = np.ascontiguousarray(value if type(value) is np.ndarray else np.array(value, "<i8"))
    except (ValueError, TypeError, OverflowError) as error:
        return f"none: {error}"
    return blake3_hex(canonical([array.dtype.str, [*array.shape], blake3_hex(array.tobytes())]))


def _sampler(sampler: Any, depth: int = 0) -> dict[str, Any]:
    """A sampler by its class, its settings and the seed of its generator."""
    own = _attributes(sampler)
    found: dict[str, Any] = {"class": _class(sampler), **{name: own[name] for name in SETTINGS if _is_setting(own.get(name))}}
    if isinstance(own.get("generator"), Generator):
        found["seed"] = _seed(own["generator"])
    found |= _content({name: own[name] for name in ("weights", "indices") if name in own})
    inner = next((own[name] for name in ("sampler", "batch_sampler") if own.get(name) is not None), None)
    return found | ({"of": _sampler(inner, depth + 1)} if inner is not None and depth < DEEPEST else {})


def _seed(generator: Any) -> int | None:
    """The seed of a generator; None if the sampler uses PyTorch's default generator, whose state is in the manifest."""
    return generator.initial_seed() if isinstance(generator, Generator) else None


def _attributes(thing: Any) -> dict[str, Any]:
    """The attributes in the `__dict__` of an object; properties are not called."""
    return dict(getattr(thing, "__dict__", None) or {})


def _is_setting(value: Any) -> bool:
    return type(value) in (int, bool) and abs(value) < 1 << 63


def _is_dataset(value: Any) -> bool:
    return isinstance(value, Dataset) or any(name in _attributes(value) for name in FINGERPRINTS[:1])


def _class(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
