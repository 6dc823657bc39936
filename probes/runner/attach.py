"""From a spec and a model to a run that is ready to be entered."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from probes.audit.provenance import Script, collect
from probes.plan import Plan, resolve
from probes.runner.directory import claim, default_directory, new_run_id, publish, release
from probes.runner.recording import Recording
from probes.runner.run import Run
from probes.spec import load_spec
from probes.store.raw_file import sync_directory

MANIFEST = "run.json"
SPEC = "spec.yaml"


def attach(
    model: Module | Mapping[str, Module],
    spec: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    overrides: Sequence[str] = (),
    vars: Mapping[str, Any] | None = None,  # noqa: A002 - the spec's own word
    tags: Mapping[str, str] | None = None,
    allow_plugins: Sequence[str] = (),
    data: Mapping[str, str] | None = None,
    script: Script | None = None,
    automatic: bool = False,
) -> Run:
    """Check a spec against a model and get its hooks ready; use the result as a context manager.

    Args:
        model: the model, or several by name where the spec's `models` names them.
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory, absent or empty; by default `runs/<name>/<run-id>`.
        overrides: `path=value` texts, as `--set` takes them.
        vars: values for the spec's `vars`.
        tags: free names and values for the manifest.
        allow_plugins: kinds of plug-ins that may be imported.
        data: digests of the data sets by name, for the manifest.
        script: the program to record; by default that of the process.
        automatic: whether epochs open by themselves, as around a script.

    Raises:
        SpecError: the spec does not say what a spec may say.
        PlanError: the spec does not fit the model.
        StorageError: the directory cannot be used.
    """
    texts = [*overrides, *(f"vars.{name}={_text(value)}" for name, value in (vars or {}).items())]
    plan = resolve(load_spec(spec, overrides=texts, allow_plugins=allow_plugins), model)
    run_id = new_run_id()
    directory = (Path(out) if out is not None else default_directory(plan.loaded.spec.name, run_id)).absolute()  # a loop may chdir
    claim(directory, run_id)
    try:
        provenance = collect(
            plan.trees,
            plan.loaded,
            run_id=run_id,
            script=script,
            automatic=automatic,
            overrides=plan.loaded.overrides,
            rank=rank(),
            world=world(),
            plan=plan.as_dict(),
            tags=tags,
            data=data,
        )
        text = provenance.manifest.model_dump_json(indent=2)
        files = {MANIFEST: f"{text}\n".encode(), SPEC: plan.loaded.source, **provenance.files}
        for name, content in files.items():
            publish(directory / name, content)
        sync_directory(directory)
        sync_directory(directory.parent)
    except BaseException:
        release(directory)
        raise
    head = {
        "run_id": run_id,
        "rank": rank(),
        "manifest": provenance.manifest.model_dump(mode="json"),
        "spec": plan.loaded.source.decode(),
        "resolved": plan.loaded.resolved.decode(),
    }
    return Run(plan, directory, _recording(plan, directory, head), automatic=automatic, rank=rank())


def _text(value: object) -> str:
    """A value as an override says it; a text is quoted, so that it stays one whatever it looks like."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def rank() -> int:
    """Rank of this process among the processes of a launch; 0 where there is one process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """The number of processes of the launch."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def _recording(plan: Plan, directory: Path, head: dict[str, Any]) -> Recording:
    spec = plan.loaded.spec
    sink = next((sink for sink in spec.sinks.values() if sink.kind == "hdf5"), None)
    options = sink.model_dump(exclude={"kind"}, mode="json", exclude_none=True) if sink is not None else {}
    return Recording(directory, head, spec.durability, spec.limits.buffer_bytes, options)
