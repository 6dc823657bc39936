"""From a spec and a model to a run that is ready to be entered."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.nn import Module

from probes.errors import UsageError, nearest
from probes.hooks.capture.tracing import undisturbed
from probes.plan import Plan, resolve
from probes.plan.edit_source import given_names
from probes.provenance.collect import Script
from probes.provenance.own_code import Functions, with_functions
from probes.run_directory.recording import Recording
from probes.runner.run import Run, attached_in
from probes.runner.start import Start, Wanted, begin, called_as_before, part, rank
from probes.spec import load_spec


def attach(
    model: Module | Mapping[str, Module],
    spec: Any,
    out: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    take_over: bool = False,
    overrides: Sequence[str] = (),
    vars: Mapping[str, Any] | None = None,  # noqa: A002 - the spec's own word
    tags: Mapping[str, str] | None = None,
    allow_plugins: Sequence[str] = (),
    allow_code: Sequence[str] = (),
    functions: Functions | None = None,
    given: Mapping[str, Any] | None = None,
    data: Mapping[str, str] | None = None,
    script: Script | None = None,
    automatic: bool = False,
    candidate: int | None = None,
) -> Run:
    """Check a spec against a model and get its hooks ready; use the result as a context manager.

    Args:
        model: the model, or several by name if the spec's `models` names them.
        spec: path of a spec, `preset:NAME`, a mapping or a Spec.
        out: the run directory, absent or empty; by default `runs/<name>/<run-id>`.
        resume: continue the run in `out`, if there is one: its next epochs go into files of another attempt, and
            `run.next_epoch` says which one is not complete.
        take_over: resume even if it is not known whether the process still lives that has claimed the directory, such as one on
            another machine; a run of this process that was entered and not left is ended.
        overrides: `path=value` texts, as `--set` takes them.
        vars: values for the spec's `vars`.
        tags: free names and values for the manifest.
        allow_plugins: kinds of plug-ins that may be imported.
        allow_code: files whose functions the spec may run, for transforms of kind `python`.
        functions: functions of the program by name, for the same.
        given: tensors by name, for edits with `from: {given: NAME}`; `run.set` gives others later.
        data: digests of the data sets by name, for the manifest.
        script: the program to record; by default that of the process.
        automatic: whether epochs open by themselves, as around a script.
        candidate: which of the models that fit the spec it is, in the order of their first calls, for the manifest.

    Raises:
        SpecError: the spec does not say what a spec may say.
        PlanError: the spec does not fit the model.
        StorageError: the directory cannot be used, or its disk has too little space.
        UsageError: the model is of another type, or what is to be resumed is a run of another spec or model.
        MissingExtra: the compression needs a package that is not installed.
    """
    _check_model(model, spec)
    texts = [*overrides, *(f"vars.{name}={_text(value)}" for name, value in (vars or {}).items())]
    loaded = with_functions(load_spec(spec, overrides=texts, allow_plugins=allow_plugins), allow_code, functions)
    wanted = Wanted(out, resume, take_over, tags or {}, data or {}, script, automatic, candidate)
    plan = resolve(called_as_before(loaded, wanted), model, given or {})
    _refuse_unused(plan, given or {})
    plan.loaded.spec.record.require_packages()
    if out is not None:
        for run in attached_in(Path(out).absolute()):
            run.give_way(take_over=resume and take_over)
    start = undisturbed(begin)(plan, wanted)
    return Run(plan, _recording(plan, start), start.past, automatic=automatic, rank=rank())


def _check_model(model: object, spec: object) -> None:
    if isinstance(model, Module) or (isinstance(model, Mapping) and all(isinstance(one, Module) for one in model.values()) and model):
        return
    if isinstance(spec, Module):
        raise UsageError("the model comes first: `probes.attach(model, spec)`")
    found = f"the class `{model.__name__}`; make an instance of it" if isinstance(model, type) else f"a `{type(model).__name__}`"
    raise UsageError(f"the model must be a `torch.nn.Module`, or a mapping of names to modules; got {found}")


def _refuse_unused(plan: Plan, given: Mapping[str, Any]) -> None:
    wanted = {name for probe in plan.spec.probes.values() if probe.edit for name in given_names(probe.edit)}
    for name in given:
        if name not in wanted:
            raise UsageError(f"the spec takes no tensor `{name}`; {nearest(name, wanted) or 'an edit takes one by `{given: NAME}`'}")


def _text(value: object) -> str:
    """A value as an override says it; a text is quoted, so that it stays one whatever it looks like."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _recording(plan: Plan, start: Start) -> Recording:
    spec = plan.loaded.spec
    options = spec.record
    return Recording(
        start.owned,
        start.head,
        rank=part(),
        launch=start.launch,
        attempt=start.past.attempt,
        durability=spec.durability,
        buffer_bytes=spec.limits.buffer_bytes,
        segment_steps=options.seal.steps if options.seal is not None else None,
        compression=options.compression,
    )
