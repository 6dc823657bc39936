"""What can be wrong between a spec and a model, or a run."""

from __future__ import annotations

from probes.error_codes.code import Code


def _with(wrong: str, right: str, probe: str) -> tuple[str, str]:
    """Two specs that differ in one line at the top."""
    tail = f"\nprobes:\n  acts: {probe}"
    return f"version: 1\n{wrong}{tail}", f"version: 1\n{right}{tail}"


def _probe(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one probe."""
    head = "version: 1\nprobes:\n  acts: "
    return head + wrong, head + right


def _edited(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one edit."""
    head = "version: 1\nallow_edits: true\nprobes:\n  acts: "
    return head + wrong, head + right


MODEL: dict[str, Code] = {
    "unknown-module": Code(
        "The model has no module of this path; `probes tree` lists those it has.",
        *_probe("{hook: forward, modules: [classifer]}", "{hook: forward, modules: [classifier]}"),
    ),
    "module-without-forward": Code(
        "The module is a container that is never called, so no hook on it would fire.",
        *_probe("{hook: forward, modules: [blocks]}", '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "scripted-module": Code("Hooks do not work on a ScriptModule."),
    "no-match": Code(
        "A pattern matches no module or no parameter.",
        *_probe('{hook: forward, modules: ["block.*"]}', '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "unknown-type": Code(
        "No module of the model is of this class, or no imported module holds it.",
        *_probe('{hook: forward, modules: ["**"], types: [Conv2D]}', '{hook: forward, modules: ["**"], types: [Conv2d]}'),
    ),
    "unknown-tensor": Code(
        "The model has no parameter or buffer of this name.",
        *_probe("{hook: tensor, tensors: [classifier.wieght]}", "{hook: tensor, tensors: [classifier.weight]}"),
    ),
    "frozen-parameter": Code(
        "The parameter has requires_grad=False, so no gradient ever reaches it.",
        *_probe("{hook: tensor, tensors: [frozen.weight]}", "{hook: tensor, tensors: [frozen.weight], values: [data]}"),
    ),
    "sharded-parameter": Code("PyTorch calls no hook for one backward's part of the gradient of a parameter that `fully_shard` took over."),
    "bad-reference": Code("A reference names the output or input of a module."),
    "data-of-value": Code("`data` belongs to a parameter or a buffer, not to the value of a module."),
    "unexpected-matches": Code(
        "The number of targets is not what `expect.matches` says.",
        *_probe(
            '{hook: forward, modules: ["blocks.*"], expect: {matches: 3}}', '{hook: forward, modules: ["blocks.*"], expect: {matches: 2}}'
        ),
    ),
    "too-many-matches": Code(
        "A probe has more targets than `limits.matches_per_probe` allows.",
        *_with("limits: {matches_per_probe: 1}", "limits: {matches_per_probe: 9}", '{hook: forward, modules: ["blocks.*"]}'),
    ),
    "transform-does-not-fit": Code(
        "A transform cannot take the value it is given.",
        *_probe(
            "{hook: forward, modules: [classifier], transforms: [{kind: stats}, {kind: select, dim: stat, index: 10}]}",
            "{hook: forward, modules: [classifier], transforms: [{kind: stats}, {kind: select, dim: stat, index: 1}]}",
        ),
    ),
    "dims-do-not-fit": Code(
        "`dims` names more or fewer axes than the parameter or buffer has.",
        *_probe(
            "{hook: tensor, tensors: [classifier.bias], dims: [out, in]}",
            "{hook: tensor, tensors: [classifier.bias], dims: [out]}",
        ),
    ),
    "too-large-for-sink": Code(
        "A sink takes captures up to its limit of elements; put a transform before it that makes them smaller.",
        *_with("sinks: {log: {kind: jsonl}}", "sinks: {captures: {kind: hdf5}}", "{hook: forward, modules: [classifier]}"),
    ),
    "ring-too-large": Code("What waits in memory for a trigger is more than `limits.buffer_bytes` allows."),
    "memory-not-counted": Code(
        "`memory` is asked of a model whose device counts no memory, or of a module that is compiled.",
        *_probe("{modules: [classifier], values: [memory]}", "{modules: [classifier], values: [output]}"),
    ),
    "memory-peak": Code("A note: measuring memory resets the device's own peak counter."),
    "fullgraph": Code("The value cannot be taken without a graph break, and the module is compiled with fullgraph=True."),
    "fast-path": Code("A hook makes PyTorch use other kernels in `eval` than without it."),
    "two-edits": Code(
        "Two edits of one value would depend on their order.",
        *_edited(
            "{modules: [frozen], values: [output], edit: {kind: zero}}\n  more: {modules: [frozen], values: [output], edit: {kind: zero}}",
            "{modules: [frozen], values: [output], edit: {kind: scale, by: 0.5}}",
        ),
    ),
    "edit-source": Code("The capture or the file that an edit takes its tensor from cannot be read."),
    "edit-of-data": Code(
        "A parameter itself is not edited, only its gradient.",
        *_edited(
            "{hook: tensor, tensors: [classifier.weight], values: [data], edit: {kind: zero}}",
            "{hook: tensor, tensors: [classifier.weight], edit: {kind: zero}}",
        ),
    ),
    "edit-too-late": Code(
        "The gradient is edited at a stage where the optimizer has already used it.",
        *_edited(
            "{hook: tensor, tensors: [classifier.weight], stage: final, edit: {kind: zero}}",
            "{hook: tensor, tensors: [classifier.weight], stage: accumulated, edit: {kind: zero}}",
        ),
    ),
    "edit-of-gradients": Code(
        "The edit is about gradients, and the probe is not.",
        *_edited(
            "{hook: forward, modules: [classifier], edit: {kind: clip_norm, max_norm: 1}}",
            "{hook: backward, modules: [classifier], edit: {kind: clip_norm, max_norm: 1}}",
        ),
    ),
    "no-model-fits": Code("No model that the script called fits the spec."),
    "model-not-called": Code("A class named under `models` was never called."),
    "captured-nothing": Code(
        "A probe captured nothing in the whole run.",
        *_probe("{hook: forward, modules: [unused]}", "{hook: forward, modules: [classifier]}"),
    ),
    "missed-steps": Code("A target did not fire on every step on which it was due."),
}
"""A spec and a model, or a run, do not fit together."""
