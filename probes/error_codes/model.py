"""Errors between a spec and a model, or in a run."""

from __future__ import annotations

from probes.error_codes.code import Code
from probes.error_codes.examples import above, one_edit, one_probe

MODEL: dict[str, Code] = {
    "unknown-module": Code(
        "The model has no module with this path; `probes tree` lists its modules.",
        *one_probe("{hook: forward, modules: [classifer]}", "{hook: forward, modules: [classifier]}"),
    ),
    "module-without-forward": Code(
        "The module is a container without `forward`, so hooks on it never fire.",
        *one_probe("{hook: forward, modules: [blocks]}", '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "scripted-module": Code(
        "Hooks do not work on a ScriptModule.",
        advice="Attach to the module before `torch.jit.script`, or probe the module that contains it.",
    ),
    "no-match": Code(
        "A pattern matches no module or no parameter.",
        *one_probe('{hook: forward, modules: ["block.*"]}', '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "unknown-type": Code(
        "The model has no module of this class, or the class is not in an imported Python module.",
        *one_probe('{hook: forward, modules: ["**"], types: [Conv2D]}', '{hook: forward, modules: ["**"], types: [Conv2d]}'),
    ),
    "unknown-tensor": Code(
        "The model has no parameter or buffer with this name.",
        *one_probe("{hook: tensor, tensors: [classifier.wieght]}", "{hook: tensor, tensors: [classifier.weight]}"),
    ),
    "frozen-parameter": Code(
        "The parameter has `requires_grad=False` when the probes are attached, so it has no gradient.",
        *one_probe("{hook: tensor, tensors: [frozen.weight]}", "{hook: tensor, tensors: [frozen.weight], values: [data]}"),
    ),
    "sharded-parameter": Code(
        "`stage: increment` is not possible for a parameter of `fully_shard`: PyTorch calls no hook for it.",
        advice="Write `stage: accumulated` or `stage: final`; the gradient is then read when it is complete.",
    ),
    "bad-reference": Code(
        "A value under `tensors` must be `module:output` or `module:input`.",
        advice="Write `features.block2:output` for a value of a module; a parameter or a buffer has no colon.",
    ),
    "data-of-value": Code(
        "`data` is a value of parameters and buffers, not of `module:value`.",
        advice=(
            "Leave `values` out: a value of a module has its gradient, `grad`; the value itself is captured by a probe with `modules`."
        ),
    ),
    "unexpected-matches": Code(
        "The number of targets differs from `expect.matches`.",
        *one_probe(
            '{hook: forward, modules: ["blocks.*"], expect: {matches: 3}}', '{hook: forward, modules: ["blocks.*"], expect: {matches: 2}}'
        ),
    ),
    "too-many-matches": Code(
        "A probe has more targets than `limits.matches_per_probe` allows.",
        *above("limits: {matches_per_probe: 1}", "limits: {matches_per_probe: 9}", '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "transform-does-not-fit": Code(
        "A transform cannot process its input.",
        *one_probe(
            "{hook: forward, modules: [classifier], transforms: [{kind: stats}, {kind: select, dim: stat, index: 10}]}",
            "{hook: forward, modules: [classifier], transforms: [{kind: stats}, {kind: select, dim: stat, index: 1}]}",
        ),
    ),
    "dims-do-not-fit": Code(
        "`dims` names more or fewer axes than the parameter or buffer has.",
        *one_probe(
            "{hook: tensor, tensors: [classifier.bias], dims: [out, in]}",
            "{hook: tensor, tensors: [classifier.bias], dims: [out]}",
        ),
    ),
    "too-large-for-sink": Code(
        "The captures have more elements than the limit of the sink; add a transform that makes them smaller.",
        *above("sinks: {log: {kind: jsonl}}", "sinks: {captures: {kind: hdf5}}", "{hook: forward, modules: [classifier]}"),
    ),
    "ring-too-large": Code(
        "The captures that wait for a trigger need more memory than `limits.buffer_bytes`.",
        advice=(
            "Capture less (fewer modules, a transform such as `stats`), keep fewer steps (`before` of the trigger), or raise "
            "`limits.buffer_bytes`."
        ),
    ),
    "memory-not-counted": Code(
        "`memory` is not available on a device without memory counters, such as the CPU, or for a compiled module.",
        *one_probe("{modules: [classifier], values: [memory]}", "{modules: [classifier], values: [output]}"),
    ),
    "memory-peak": Code(
        "note: the probe resets the peak memory counter of the device.",
        advice=(
            "Nothing to do, unless your program reads `torch.cuda.max_memory_allocated()` itself: each call of the module sets its "
            "number back."
        ),
    ),
    "fullgraph": Code(
        "The value needs a graph break, but the module is compiled with `fullgraph=True`.",
        advice=(
            "Compile without `fullgraph=True`, capture another value of the module (`output` needs no break), or probe the module "
            "around it."
        ),
    ),
    "graph-break": Code(
        "note: the value is in a compiled module, and its hook breaks the compiled graph.",
        advice=(
            "The values are right, but the training may be slower: PyTorch compiles the code before and after the break, and runs a whole "
            "function uncompiled if the break is in a loop of it. `output`, `input` and the `grad` of parameters break no graph."
        ),
    ),
    "recompile": Code(
        "The module is compiled, and `torch._dynamo.config.error_on_recompile` allows one graph, but the schedule needs two.",
        advice=(
            "A compiled module has one graph for steps in which a probe is due, and one for others. Capture every step of every epoch, or "
            "leave `error_on_recompile` off in this run."
        ),
    ),
    "old-compiler": Code(
        "The module is compiled, and this version of torch drops hooks from compiled graphs.",
        advice="Install a newer torch, or run without `torch.compile` while you capture.",
    ),
    "wrapped-path": Code(
        "note: the path has wrapper levels, such as `module.` of `DataParallel`; captures omit them.",
        advice=("Nothing to do. Paths without the wrapper levels are the same for wrapped and plain models, so that runs can be compared."),
    ),
    "unknown-operation": Code(
        "Torch has no function or method with this name; `ops` names functions such as `linear`.",
        *one_probe("{hook: forward, modules: [classifier], ops: [liner]}", "{hook: forward, modules: [classifier], ops: [linear]}"),
    ),
    "operation-not-seen": Code(
        "The module is compiled, so its operations are not seen; or the edited operation writes to its input, and its result is not used.",
        *one_edit(
            "{hook: forward, modules: [classifier], ops: [relu_], edit: {kind: scale, by: 2.0}}",
            "{hook: forward, modules: [classifier], edit: {kind: scale, by: 2.0}}",
        ),
    ),
    "inputs-without-names": Code(
        "note: Python knows no signature of the `forward`, so its inputs have positions and no names.",
        advice="Name inputs by position (`input.0`), or give the `forward` a signature.",
    ),
    "fast-path": Code(
        "note: with a hook, PyTorch uses other kernels in phase `eval` than without one.",
        advice=(
            "The numbers may differ in their last bits from those of a run without probes. `probes neutral` measures it; "
            "`torch.backends.mha.set_fastpath_enabled(False)` makes both equal."
        ),
    ),
    "two-edits": Code(
        "Two probes edit one value; the result would depend on their order.",
        *one_edit(
            "{modules: [frozen], values: [output], edit: {kind: zero}}\n  more: {modules: [frozen], values: [output], edit: {kind: zero}}",
            "{modules: [frozen], values: [output], edit: {kind: scale, by: 0.5}}",
        ),
    ),
    "edit-source": Code(
        "The source of an edit, a capture or a file, cannot be read.",
        advice="Check the path, and that the run has the series and the step that `from` names; `probes ls RUN` lists them.",
    ),
    "no-second-tensor": Code(
        "A value has no tensor to compare with: the other probe or run has no such target, or the run cannot be read.",
        *one_probe(
            "{modules: [frozen], values: [output], against: {series: q}, transforms: [{kind: cosine}]}\n"
            "  q: {modules: [classifier, unused], values: [output]}",
            "{modules: [classifier], values: [output], against: {series: q}, transforms: [{kind: cosine}]}\n"
            "  q: {modules: [classifier], values: [output], transforms: [{kind: norm}]}",
        ),
    ),
    "other-schedule": Code(
        "note: a probe and the one that it is compared with are due in different steps.",
        advice="Only steps in which both are due can be compared. Give both the same `when`, such as by `defaults`.",
    ),
    "edit-of-data": Code(
        "An edit cannot change a parameter, only its gradient.",
        *one_edit(
            "{hook: tensor, tensors: [classifier.weight], values: [data], edit: {kind: zero}}",
            "{hook: tensor, tensors: [classifier.weight], edit: {kind: zero}}",
        ),
    ),
    "edit-too-late": Code(
        "The edit is at stage `final`, but the optimizer has already used this gradient.",
        *one_edit(
            "{hook: tensor, tensors: [classifier.weight], stage: final, edit: {kind: zero}}",
            "{hook: tensor, tensors: [classifier.weight], stage: accumulated, edit: {kind: zero}}",
        ),
    ),
    "edit-of-gradients": Code(
        "The edit works on gradients only, but the value is not a gradient.",
        *one_edit(
            "{hook: forward, modules: [classifier], edit: {kind: clip_norm, max_norm: 1}}",
            "{hook: backward, modules: [classifier], edit: {kind: clip_norm, max_norm: 1}}",
        ),
    ),
    "ambiguous-model": Code(
        "Several modules of the script fit the spec, and no optimizer step shows which one is meant.",
        advice=(
            "Name the class under `models`, and the instance: `models: {student: {class: Encoder, instance: 1}}`, counted in the "
            "order of first calls, or `trained: true`."
        ),
    ),
    "no-model-fits": Code(
        "The script called no model that fits the spec.",
        advice=(
            "The message says for each model what is missing. A path may be written as another class has it, or the script may have "
            "ended before it called the model. `probes coverage SPEC SCRIPT` shows what is called, `probes tree --watch SCRIPT` the "
            "paths."
        ),
    ),
    "model-not-called": Code(
        "The script never called a model of a class under `models`.",
        advice="Check the name of the class; the message lists the classes that were called.",
    ),
    "captured-nothing": Code(
        "A probe captured nothing in the whole run.",
        *one_probe("{hook: forward, modules: [unused]}", "{hook: forward, modules: [classifier]}"),
        advice=(
            "The message has the reason: a schedule that no step meets, a module that is never called, no gradient, or values that "
            'could not be taken. The page "Captured nothing, why?" (docs/nothing.md) has each reason with its remedy.'
        ),
    ),
    "rule-broken": Code(
        "Numbers of a series are out of the bounds of a rule with `then: fail`.",
        advice=(
            "The verdict names the series, the steps and the number. Look at them with `probes show RUN SERIES`; change the model, "
            "or the bound if the numbers are right."
        ),
    ),
    "rule-judged-nothing": Code(
        "No capture has a target, leaf and number that the rule names, or captures are too large to check.",
        advice=(
            "Compare the names in the rule with those that `probes ls RUN` lists, and the number with the labels of the series, "
            "such as `std` of `stats`."
        ),
    ),
    "missed-steps": Code(
        "A value of a target is missing in a due step.",
        advice=(
            "The message has the value and the reason, such as a module that is skipped in some steps, or a gradient that did not "
            "come. If that is right for your program, write `expect: {fires: some}`."
        ),
    ),
}
"""A spec and a model, or a run, do not fit together."""
