"""Errors in the content of a spec."""

from __future__ import annotations

from probes.error_codes.code import Code
from probes.error_codes.examples import above, one_edit, one_probe, one_rule
from probes.error_codes.spec_text import LEAST

SPEC: dict[str, Code] = {
    "not-a-mapping": Code(
        "The top level of a spec must be a mapping of keys to values.",
        "- version: 1",
        LEAST,
    ),
    "newer-version": Code(
        "The spec has a version that this release does not know.",
        "version: 2\nprobes:\n  acts: {hook: forward, modules: [fc1]}",
        LEAST,
    ),
    "wrong-version": Code(
        "`version` must be the whole number 1.",
        'version: "1"\nprobes:\n  acts: {hook: forward, modules: [fc1]}',
        LEAST,
    ),
    "unknown-key": Code(
        "The key does not exist at this place; it is misspelled, or belongs to another place. No key of a spec is ignored.",
        *one_probe("{hook: forward, module: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "missing-key": Code("A required key is missing.", "version: 1\nname: one", LEAST),
    "wrong-type": Code(
        "The value has the wrong type for its key. Write a list with one member as a list.",
        *one_probe("{hook: forward, modules: fc1}", "{hook: forward, modules: [fc1]}"),
    ),
    "bad-choice": Code(
        "The value is not one of the words that the key allows.",
        *one_probe("{hook: backwards, modules: [fc1]}", "{hook: backward, modules: [fc1]}"),
    ),
    "out-of-range": Code(
        "A number is below the minimum or above the maximum.",
        *one_probe(
            "{hook: forward, modules: [fc1], when: {steps: {every: 0}}}", "{hook: forward, modules: [fc1], when: {steps: {every: 1}}}"
        ),
    ),
    "wrong-length": Code(
        "A list or a mapping has too few or too many members.",
        "version: 1\nprobes: {}",
        LEAST,
    ),
    "bad-value": Code(
        "The transform, edit or sink refuses the value; the message gives the reason.",
        advice="`probes check` shows the place; docs/kinds.md and the completion of editors have what each key takes.",
    ),
    "name": Code(
        "Names of probes, sinks, models and axes contain letters, digits, _ and -, begin with a letter and have at most 64 characters.",
        "version: 1\nprobes:\n  ../acts: {hook: forward, modules: [fc1]}",
        LEAST,
    ),
    "pattern": Code(
        "A pattern of modules is a glob: `*` within a level, `**` for whole levels, `?`, `{a,b}`, `{8..11}`.",
        *one_probe('{hook: forward, modules: ["^layers[0-9]+"]}', '{hook: forward, modules: ["layers.{0..9}"]}'),
    ),
    "function-name": Code(
        "`function` is not FILE.py:NAME with a path below the folder of the spec, and not a NAME.",
        *one_probe(
            '{hook: forward, modules: [fc1], transforms: [{kind: python, function: "../m.py:f"}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: python, function: "m.py:f"}]}',
        ),
    ),
    "not-last": Code(
        "A transform that must be the last one is followed by another.",
        *one_probe(
            '{hook: forward, modules: [fc1], transforms: [{kind: python, function: "m.py:f"}, {kind: norm}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: norm}, {kind: python, function: "m.py:f"}]}',
        ),
    ),
    "gather-on-some-ranks": Code(
        "A probe with `gather: full`, which needs all ranks, has a schedule that names ranks.",
        *one_probe(
            "{hook: forward, modules: [fc1], gather: full, when: {ranks: {at: [0]}}}",
            "{hook: forward, modules: [fc1], gather: full}",
        ),
    ),
    "unknown-function": Code(
        "The file has no function with this name.",
        advice=(
            "Check the name after the colon in `function: FILE.py:NAME`, and that the function is defined at the top level of the file."
        ),
    ),
    "code-differs": Code(
        "The file is not the one whose `sha256` the spec names.",
        advice=(
            "The function was changed after its digest was written into the spec. If the change is intended, put the new SHA-256 "
            "into the spec; the old one is in its history."
        ),
    ),
    "operation-name": Code(
        "An entry of `ops` is not the name of a function; write `softmax`, `softmax[0]` for its first call, or `torch.nn.functional.gelu`.",
        *one_probe('{hook: forward, modules: [fc1], ops: ["softmax[first]"]}', '{hook: forward, modules: [fc1], ops: ["softmax[0]"]}'),
    ),
    "value-path": Code(
        "The value is not a root and keys, joined by dots, such as `output`, `output.1` or `output.logits`.",
        *one_probe('{modules: [fc1], values: ["outputs"]}', '{modules: [fc1], values: ["output.0"]}'),
    ),
    "dtype": Code("The name is not a dtype of torch.", *above("tolerance: {float31: {rtol: 0.1}}", "tolerance: {float32: {rtol: 0.1}}")),
    "bytes": Code(
        "An amount of bytes is a number and a unit, or `unlimited`.",
        *above("limits: {bytes_per_epoch: 2 gigs}", "limits: {bytes_per_epoch: 2 GiB}"),
    ),
    "wrong-condition": Code(
        "A condition (`where`, or a `threshold` trigger) compares one number of each capture; `of` is a transform that makes it.",
        *one_probe(
            "{hook: forward, modules: [fc1], where: {of: {kind: accumulate}, above: 1}}",
            "{hook: forward, modules: [fc1], where: {of: {kind: norm}, above: 1}}",
        ),
    ),
    "wrong-comparison": Code(
        "A comparison needs `against` with one of `step`, `series` and `run`, and one transform that compares two tensors.",
        *one_probe(
            "{hook: forward, modules: [fc1], against: {step: previous}}",
            "{hook: forward, modules: [fc1], against: {step: previous}, transforms: [{kind: cosine}]}",
        ),
    ),
    "range": Code(
        "A range of `when`, or the bounds of a condition, select nothing, or combine keys that contradict each other.",
        *one_probe(
            "{hook: forward, modules: [fc1], when: {steps: {at: [3], every: 2}}}",
            "{hook: forward, modules: [fc1], when: {steps: {at: [3]}}}",
        ),
    ),
    "phases": Code(
        "`phases` must be a list of phases: `train`, `eval`, or names from the loop.",
        *one_probe(
            "{hook: forward, modules: [fc1], when: {phases: [all]}}", "{hook: forward, modules: [fc1], when: {phases: [train, eval]}}"
        ),
    ),
    "kind-missing": Code(
        "A transform, an edit or a sink needs the key `kind`.",
        *one_probe(
            "{hook: forward, modules: [fc1], transforms: [{dtype: float16}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: cast, dtype: float16}]}",
        ),
    ),
    "kind-unknown": Code(
        "The kind does not exist. A spec names kinds of a registry and never imports code.",
        *one_probe(
            "{hook: forward, modules: [fc1], transforms: [{kind: os.system}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: stats}]}",
        ),
    ),
    "plugin-not-allowed": Code(
        "The kind comes from a plug-in. A spec alone cannot import a plug-in; `--allow-plugin KIND` allows it.",
        advice="Give the option if you know the package that brings the kind; `probes plugins` lists all that are installed.",
    ),
    "plugin-broken": Code(
        "The plug-in of the kind cannot be imported, or its entry point does not name a class of this kind.",
        advice="Install the package again, or tell its author; the message has the reason of the import.",
    ),
    "no-place": Code("A probe has neither `modules` nor `tensors`.", *one_probe("{hook: forward}", "{hook: forward, modules: [fc1]}")),
    "two-places": Code(
        "A probe has both `modules` and `tensors`.", *one_probe("{modules: [fc1], tensors: [fc1.weight]}", "{tensors: [fc1.weight]}")
    ),
    "no-hook": Code("A probe has neither `hook` nor `values`.", *one_probe("{modules: [fc1]}", "{hook: forward, modules: [fc1]}")),
    "hook-and-place": Code(
        "Hook `tensor` needs `tensors`; every other hook needs `modules`.",
        *one_probe("{hook: tensor, modules: [fc1]}", "{hook: tensor, tensors: [fc1.weight]}"),
    ),
    "hook-and-value": Code(
        "The hook cannot capture the value: `pre-forward` is for inputs, `forward` for outputs, `backward` for their gradients.",
        *one_probe("{hook: forward, modules: [fc1], values: [input]}", "{modules: [fc1], values: [input]}"),
    ),
    "value-and-place": Code(
        "`grad`, `data`, `update` and `state` are values of tensors, `loop` of the training loop, all others of modules.",
        *one_probe("{tensors: [fc1.weight], values: [output]}", "{tensors: [fc1.weight], values: [data]}"),
    ),
    "value-keys": Code(
        "`grad`, `data`, `update` and `memory` are one tensor and have no keys.",
        *one_probe("{tensors: [fc1.weight], values: [grad.0]}", "{tensors: [fc1.weight], values: [grad]}"),
    ),
    "no-effect": Code(
        "A setting has no effect in this place.",
        *one_probe("{hook: forward, modules: [fc1], stage: final}", "{hook: tensor, tensors: [fc1.weight], stage: final}"),
    ),
    "mask-without-call": Code(
        "A `mask` is an input of the module's call, so it works for `input` and `output` of modules only.",
        *one_probe(
            "{hook: backward, modules: [fc1], transforms: [{kind: stats, mask: input.1}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: stats, mask: input.1}]}",
        ),
    ),
    "unknown-probe": Code(
        "A rule, or `against`, names a probe that the spec does not have.",
        *one_rule("{probe: act, above: 6}", "{probe: acts, above: 6}"),
    ),
    "rule-bounds": Code(
        "A rule has no bound, two bounds of the same side, or bounds that no number keeps.",
        *one_rule("{probe: acts, above: 0, below: 6}", "{probe: acts, above: 6, below: 0}"),
    ),
    "unknown-number": Code(
        "The captures of the probe have no number with the label that a rule names.",
        *one_rule("{probe: acts, number: zero, above: 6}", "{probe: acts, number: zeros, above: 6}"),
    ),
    "unknown-sink": Code(
        "A probe names a sink that the spec does not declare.",
        *one_probe("{hook: forward, modules: [fc1], sinks: [capture]}", "{hook: forward, modules: [fc1], sinks: [captures]}"),
    ),
    "sink-path": Code(
        "The `path` of a sink is not a file name in the run directory.",
        *above("sinks: {log: {kind: jsonl, path: ../log.jsonl}}", "sinks: {log: {kind: jsonl, path: log.jsonl}}"),
    ),
    "two-files": Code("Two sinks write the same file.", *above("sinks: {a: {kind: hdf5}, b: {kind: hdf5}}", "sinks: {a: {kind: hdf5}}")),
    "unknown-model": Code(
        "The model is not under `models` of the spec, or is not in the call of `probes.attach`.",
        *one_probe("{model: g, hook: forward, modules: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "no-model": Code(
        "In a spec with several models, each probe needs the key `model`.",
        *above("models: {g: Generator, d: Discriminator}", "name: one"),
    ),
    "all-disabled": Code(
        "Every probe is disabled, so the run would capture nothing.",
        *one_probe("{hook: forward, modules: [fc1], enabled: false}", "{hook: forward, modules: [fc1]}"),
    ),
    "edits-not-allowed": Code(
        "A probe with an `edit` changes values of the model. The spec must have `allow_edits: true`.",
        *one_probe(
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: 2.0}}",
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: 2.0}}\nallow_edits: true",
        ),
    ),
    "unknown-variable": Code(
        "The variable `${name}` is not under `vars`. Environment variables are never read.",
        *one_probe('{hook: forward, modules: ["${block}.conv"]}', '{hook: forward, modules: ["${block}.conv"]}\nvars: {block: features.2}'),
    ),
    "unused-variable": Code("No text of the spec uses the variable.", *above("vars: {block: features}", "name: one")),
    "extends-without-file": Code(
        "`extends` is relative to the folder of the spec, but the spec is not in a file.", *above("extends: [common.yaml]", "name: one")
    ),
    "missing-file": Code(
        "The spec, or a file or preset under `extends`, does not exist.", *above('extends: ["preset:nothing"]', "name: one")
    ),
    "absolute-path": Code(
        "A path under `extends` is absolute. It must be relative to the file of the spec, so that the spec works on every machine.",
        advice="Write the path from the folder of the spec, such as `../common/limits.yaml`.",
    ),
    "extends-cycle": Code(
        "A file extends itself, directly or through other files.",
        advice="Take one of the files out of the circle; the message shows the way from file to file.",
    ),
    "extends-outside": Code(
        "`extends` names a link, or a file outside of the repository (without one: the folder) of the first spec.",
        advice=(
            "A spec of a stranger could otherwise read any file of yours. Copy the file into the repository or the folder, and name "
            "the copy."
        ),
    ),
    "extends-no-spec": Code(
        "`extends` names a file that has no key of a spec at its top level; its lines are not shown.",
        advice="Check the path: it leads to a file of another kind.",
    ),
    "too-many-files": Code(
        "`extends` leads to more files than the limit.",
        advice="Join some of the files.",
    ),
    "bad-override": Code(
        "`--set` needs the path of a key and a value: PATH=VALUE.",
        advice="Write for example `--set probes.acts.when.steps.every=10`; docs/reference/spec.md has all keys.",
    ),
    "einops-pattern": Code(
        "The pattern of `einops` is not `axes before -> axes after`.",
        *one_probe(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f"}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b"}]}',
        ),
    ),
    "einops-axes": Code(
        "Without `reduction`, an axis is on one side of the arrow only; or `sizes` contains an axis that the pattern does not contain.",
        *one_probe(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> b"}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> b", reduction: mean}]}',
        ),
    ),
    "einops-reduction": Code(
        "`reduction` has no effect: every axis is on both sides of the arrow.",
        *one_probe(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b", reduction: mean}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b"}]}',
        ),
    ),
    "empty-range": Code(
        "The range of a transform is empty: its end is not above its start.",
        *one_probe(
            "{hook: forward, modules: [fc1], transforms: [{kind: histogram, bins: 4, range: [1.0, 0.0]}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: histogram, bins: 4, range: [0.0, 1.0]}]}",
        ),
    ),
    "one-selection": Code(
        "`select` needs exactly one of `index`, `indices` and a range (`from`, `until`, `every`).",
        *one_probe(
            "{hook: forward, modules: [fc1], transforms: [{kind: select, dim: 0}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: select, dim: 0, index: 0}]}",
        ),
    ),
    "add": Code(
        "`add` needs exactly one of `value` and `from`.",
        *one_probe(
            "{hook: forward, modules: [fc1], edit: {kind: add}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: add, value: 1.0}}\nallow_edits: true",
        ),
    ),
    "position": Code(
        "A position along an axis is a number, a list, a range, `{given: NAME}`, or `last_of NAME`.",
        *one_edit(
            "{hook: forward, modules: [fc1], dims: [batch, token], edit: {kind: zero, at: {token: last}}}",
            "{hook: forward, modules: [fc1], dims: [batch, token], edit: {kind: zero, at: {token: -1}}}",
        ),
    ),
    "factor": Code(
        "A factor of an edit is a number or `{given: NAME}`; a permutation is `{given: NAME}`.",
        *one_edit(
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: half}}",
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: 0.5}}",
        ),
    ),
    "mixup": Code(
        "`mixup` needs exactly one of `lam` and `alpha`.",
        *one_probe(
            "{hook: forward, modules: [fc1], edit: {kind: mixup}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: mixup, lam: 0.7}}\nallow_edits: true",
        ),
    ),
    "source": Code(
        "A source (`from`) needs a `file`, or a `run` and a `probe`.",
        *one_probe(
            "{hook: forward, modules: [fc1], edit: {kind: replace, from: {run: runs/a}}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: replace, from: {run: runs/a, probe: acts}}}\nallow_edits: true",
        ),
    ),
}
"""The content of a spec is not valid."""
