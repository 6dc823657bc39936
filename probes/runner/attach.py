"""From a spec and a model to a run that is ready to be entered."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from probes.audit.provenance import collect
from probes.plan import Plan, resolve
from probes.runner.directory import claim, default_directory, new_run_id, publish, release
from probes.runner.recording import Recording
from probes.runner.run import Run
from probes.spec import LoadedSpec, load_spec

MANIFEST = "run.json"


def attached(
    model: Module | Mapping[str, Module],
    spec: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    argv: Sequence[str] | None = None,
    script: str | None = None,
    tags: Mapping[str, str] | None = None,
    automatic: bool = False,
) -> Run:
    """Check a spec against a model, claim the run directory and write down where the run comes from.

    Args:
        model: the model, or several by name.
        spec: what `load_spec` takes, or a LoadedSpec.
        out: the run directory; by default `runs/<name>/<run-id>`.
        overrides: `path=value` texts, as `--set` takes them.
        argv: the command line to record; by default that of the process.
        script: the script that is running, where there is one.
        tags: free names and values for the manifest.
        automatic: whether epochs open by themselves, as around a script.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load_spec(spec, overrides=tuple(overrides))
    plan = resolve(loaded, model)
    run_id = new_run_id()
    directory = Path(out) if out is not None else default_directory(loaded.spec.name, run_id)
    claim(directory, run_id)
    try:
        recording = _recording(plan, directory, run_id, argv, script, tags or {})
    except BaseException:
        release(directory)
        raise
    return Run(plan, directory, recording, automatic=automatic, rank=rank())


def rank() -> int:
    """This process's rank among the processes of a launch; 0 where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def _recording(
    plan: Plan, directory: Path, run_id: str, argv: Sequence[str] | None, script: str | None, tags: Mapping[str, str]
) -> Recording:
    loaded, spec = plan.loaded, plan.loaded.spec
    models = {name: tree.model for name, tree in plan.trees.items()}
    manifest = collect(models, loaded, run_id=run_id, script=script, argv=argv, plan=plan.as_dict(), tags=dict(tags))
    text = manifest.model_dump_json(indent=2)
    publish(directory / MANIFEST, (text + "\n").encode())
    publish(directory / "spec.yaml", loaded.source)
    head = {
        "run_id": run_id,
        "rank": rank(),
        "manifest": manifest.model_dump(mode="json"),
        "spec": loaded.source.decode(),
        "resolved": loaded.resolved.decode(),
    }
    sink = next(iter(spec.sinks.values()), None)
    options = sink.model_dump(exclude={"kind"}, mode="json") if sink is not None else {}
    return Recording(directory, head, spec.durability, spec.limits.buffer_bytes, options)
