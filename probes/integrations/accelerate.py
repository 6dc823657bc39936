"""Probes in a loop with Accelerate: `with attach_prepared(accelerator, model, "probe.yaml", out="runs/a") as run:`."""

from __future__ import annotations

import os
from typing import Any

from torch.nn import Module

from probes.integrations.own_frames import without_own_frames
from probes.runner.attach import attach
from probes.runner.run import Run


@without_own_frames
def attach_prepared(accelerator: Any, model: Module, spec: Any, out: str | os.PathLike[str] | None = None, **options: Any) -> Run:
    """Attach probes to a model that `accelerator.prepare` has wrapped; paths are those of the model without the wrapper.

    A step is an optimizer step, so batches in `accelerator.accumulate(model)` are microsteps of one step. Every process of
    `accelerate launch` writes its rank. A checkpoint of Accelerate has no epoch: after `accelerator.load_state` give `resume=True`, and
    the first epoch in `run.epochs(count, start=...)`.

    Args:
        accelerator: the `accelerate.Accelerator`.
        model: the model, wrapped or not.
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        options: further arguments of `probes.attach`: `resume`, `overrides`, `vars`, `tags`, `allow_plugins` and others.

    Returns:
        The run, to be entered by `with`.

    Raises:
        SpecError: the spec is wrong.
        PlanError: the spec does not fit the model.
        StorageError: the directory cannot be used.
    """
    return attach(accelerator.unwrap_model(model), spec, out, **options)
