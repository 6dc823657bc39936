"""What can be wrong between a spec and a model, or a run."""

from __future__ import annotations

from probes.codes.code import Code

MODEL: dict[str, Code] = {
    "unknown-module": Code("The model has no module of this path; `probes tree` lists those it has."),
    "module-without-forward": Code("The module is a container that is never called, so no hook on it would fire."),
    "scripted-module": Code("Hooks do not work on a ScriptModule."),
    "no-match": Code("A pattern matches no module or no parameter."),
    "unknown-type": Code("No module of the model is of this class, or no imported module holds it."),
    "unknown-tensor": Code("The model has no parameter or buffer of this name."),
    "frozen-parameter": Code("The parameter has requires_grad=False, so no gradient ever reaches it."),
    "sharded-parameter": Code("PyTorch calls no hook for one backward's part of the gradient of a parameter that `fully_shard` took over."),
    "bad-reference": Code("A reference names the output or input of a module."),
    "data-of-value": Code("`data` belongs to a parameter or a buffer, not to the value of a module."),
    "unexpected-matches": Code("The number of targets is not what `expect.matches` says."),
    "too-many-matches": Code("A probe has more targets than `limits.matches_per_probe` allows."),
    "transform-does-not-fit": Code("A transform cannot take the value it is given."),
    "too-large-for-sink": Code("A small sink, such as `jsonl` or `console`, takes small captures only; a transform has to come before it."),
    "ring-too-large": Code("What waits in memory for a trigger is more than `limits.buffer_bytes` allows."),
    "memory-not-counted": Code("`memory` is asked of a model whose device counts no memory, or of a module that is compiled."),
    "memory-peak": Code("A note: measuring memory resets the device's own peak counter."),
    "fullgraph": Code("The value cannot be taken without a graph break, and the module is compiled with fullgraph=True."),
    "fast-path": Code("A hook makes PyTorch use other kernels in `eval` than without it."),
    "two-edits": Code("Two edits of one value would depend on their order."),
    "edit-source": Code("The capture or the file that an edit takes its tensor from cannot be read."),
    "edit-of-data": Code("A parameter itself is not edited, only its gradient."),
    "edit-too-late": Code("The gradient is edited at a stage where the optimizer has already used it."),
    "edit-of-gradients": Code("The edit is about gradients, and the probe is not."),
    "no-model-fits": Code("No model that the script called fits the spec."),
    "model-not-called": Code("A class named under `models` was never called."),
    "captured-nothing": Code("A probe captured nothing in the whole run."),
    "missed-steps": Code("A target did not fire on every step on which it was due."),
}
"""A spec and a model, or a run, do not fit together."""
