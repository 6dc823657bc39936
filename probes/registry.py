"""The table of kinds: family -> kind -> module and class. A new built-in kind is one line here."""

from __future__ import annotations

from importlib import import_module

from probes import plugins
from probes.component import Component

KINDS: dict[str, dict[str, str]] = {
    "transform": {
        "abs": "probes.transforms.abs:Abs",
        "accumulate": "probes.transforms.accumulate:Accumulate",
        "cast": "probes.transforms.cast:Cast",
        "cka": "probes.transforms.cka:Cka",
        "cosine": "probes.transforms.cosine:Cosine",
        "difference": "probes.transforms.difference:Subtraction",
        "einops": "probes.transforms.einops:Einops",
        "entropy": "probes.transforms.entropy:Entropy",
        "fingerprint": "probes.transforms.fingerprint:Fingerprint",
        "histogram": "probes.transforms.histogram:Histogram",
        "norm": "probes.transforms.norm:Norm",
        "project": "probes.transforms.project:Project",
        "python": "probes.transforms.python:PythonFunction",
        "quantile": "probes.transforms.quantile:Quantile",
        "quantize": "probes.transforms.quantize:Quantize",
        "reduce": "probes.transforms.reduce:Reduce",
        "relative_error": "probes.transforms.relative_error:RelativeError",
        "sample": "probes.transforms.sample:Sample",
        "select": "probes.transforms.select:Select",
        "stats": "probes.transforms.stats:Stats",
        "topk": "probes.transforms.topk:Topk",
    },
    "edit": {
        "add": "probes.edits.add:Add",
        "clamp": "probes.edits.clamp:Clamp",
        "clip_norm": "probes.edits.clip_norm:ClipNorm",
        "mixup": "probes.edits.mixup:Mixup",
        "noise": "probes.edits.noise:Noise",
        "replace": "probes.edits.replace:Replace",
        "scale": "probes.edits.scale:Scale",
        "zero": "probes.edits.zero:Zero",
    },
    "sink": {
        "aim": "probes.sinks.aim:Aim",
        "console": "probes.sinks.console:Console",
        "hdf5": "probes.record_options:RecordOptions",
        "jsonl": "probes.sinks.jsonl:Jsonl",
        "mlflow": "probes.sinks.mlflow:Mlflow",
        "tensorboard": "probes.sinks.tensorboard:Tensorboard",
        "trackio": "probes.sinks.trackio:Trackio",
        "wandb": "probes.sinks.wandb:Wandb",
    },
}


def kinds(family: str) -> tuple[str, ...]:
    """The known kinds of a family, sorted."""
    return tuple(sorted(KINDS[family]))


COMPARISONS = ("cka", "cosine", "difference", "relative_error")
"""The transforms that compare two tensors."""


def component(family: str, kind: str) -> type[Component]:
    """The class of a kind, including that of an allowed plug-in.

    Raises:
        KeyError: the family has no such kind.
    """
    plugin = plugins.find(family, kind)
    if plugin is not None and plugins.is_granted(kind):
        return plugins.load(plugin)
    module, _, name = KINDS[family][kind].partition(":")
    found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Component)):
        raise TypeError(f"{KINDS[family][kind]} is not a Component")
    return found
