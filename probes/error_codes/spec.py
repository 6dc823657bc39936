"""What can be wrong with the text of a spec, and with what it says."""

from __future__ import annotations

from probes.error_codes.code import Code


def _acts(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one probe."""
    head = "version: 1\nprobes:\n  acts: "
    return head + wrong, head + right


def _with(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one sound probe and more lines."""
    tail = "\nprobes:\n  acts: {hook: forward, modules: [fc1]}"
    return f"version: 1\n{wrong}{tail}", f"version: 1\n{right}{tail}"


LEAST = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}"

YAML: dict[str, Code] = {
    "empty-file": Code("The file is empty or holds only comments.", "# nothing here", LEAST),
    "too-large": Code("The file is larger than a spec may be."),
    "not-utf-8": Code("The file is in another encoding than UTF-8."),
    "invisible-character": Code("A character cannot be seen, so two texts that look alike would differ; or it is a control character."),
    "tab-indentation": Code("YAML indents with spaces only."),
    "not-yaml": Code(
        "YAML itself cannot read the file; often a quote or a bracket is not closed.",
        *_acts("{hook: forward, modules: [fc1}", "{hook: forward, modules: [fc1]}"),
    ),
    "unquoted-glob": Code(
        "A text that begins with `*` is an alias in YAML, so a pattern that does must be quoted.",
        *_acts("{hook: forward, modules: [**.conv]}", '{hook: forward, modules: ["**.conv"]}'),
    ),
    "unquoted-braces": Code(
        "Braces and brackets begin mappings and lists in YAML, so a text with `${`, `{` or `[` in it must be quoted.",
        *_acts("\n    hook: forward\n    modules: [${block}.conv]", '\n    hook: forward\n    modules: ["block1.conv"]'),
    ),
    "second-document": Code("A line `---` begins a second document; a file holds one spec.", *_with("---", "name: one")),
    "too-many-nodes": Code("The file holds more values than a spec may."),
    "too-deep": Code("Lists or mappings are nested deeper than a spec may be."),
    "scalar-too-long": Code("One text of the spec is longer than a text may be."),
    "alias": Code(
        "Aliases (`*name`) are a way to repeat parts that specs do not have: what stands in a spec is what is meant.",
        *_acts("{hook: forward, modules: [*conv]}", '{hook: forward, modules: ["*conv"]}'),
    ),
    "anchor": Code(
        "Anchors (`&name`) are a way to repeat parts that specs do not have.",
        *_with("defaults: &d {when: {phases: [eval]}}", "defaults: {when: {phases: [eval]}}"),
    ),
    "tag": Code("Tags (`!name`) make YAML build objects; a spec holds plain data only.", *_with("about: !!str yes", 'about: "yes"')),
    "merge-key": Code(
        "`<<` merges mappings in other YAML; specs have `defaults` and `extends`.",
        *_acts("{<<: {hook: forward}, modules: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "duplicate-key": Code(
        "A key stands twice in one mapping; other readers of YAML keep one of the two without a word.",
        *_acts("{hook: forward, modules: [fc1], modules: [fc2]}", "{hook: forward, modules: [fc1, fc2]}"),
    ),
    "key-not-text": Code(
        "A key is read as a number, a list or a mapping.",
        *_acts("{hook: forward, modules: [fc1], 1: x}", "{hook: forward, modules: [fc1]}"),
    ),
    "null": Code(
        "A key has no value, or a null. Leaving a key out is the way to say nothing.",
        *_acts("{hook: forward, modules: [fc1], when: }", "{hook: forward, modules: [fc1]}"),
    ),
    "looks-boolean": Code(
        "yes, no, on and off are booleans in YAML 1.1 and texts in 1.2; neither is meant for certain.",
        *_acts("{hook: forward, modules: [fc1], enabled: on}", "{hook: forward, modules: [fc1], enabled: true}"),
    ),
    "bad-number": Code(
        "A number has a leading zero, is not decimal, not finite, or has too many digits.",
        *_acts(
            "{hook: forward, modules: [fc1], when: {steps: {every: 010}}}", "{hook: forward, modules: [fc1], when: {steps: {every: 10}}}"
        ),
    ),
}
"""The text of a spec cannot be read."""

SPEC: dict[str, Code] = {
    "not-a-mapping": Code(
        "The top level of a spec is a mapping of keys to values.",
        "- version: 1",
        LEAST,
    ),
    "newer-version": Code(
        "The spec is of a version that came after this release.",
        "version: 2\nprobes:\n  acts: {hook: forward, modules: [fc1]}",
        LEAST,
    ),
    "wrong-version": Code(
        "`version` is the whole number 1.",
        'version: "1"\nprobes:\n  acts: {hook: forward, modules: [fc1]}',
        LEAST,
    ),
    "unknown-key": Code(
        "There is no such key here; it is misspelled, or belongs elsewhere. Nothing in a spec is ignored.",
        *_acts("{hook: forward, module: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "missing-key": Code("A key that must be there is not.", "version: 1\nname: one", LEAST),
    "wrong-type": Code(
        "A value is of another type than its key takes; a list is a list even with one member.",
        *_acts("{hook: forward, modules: fc1}", "{hook: forward, modules: [fc1]}"),
    ),
    "bad-choice": Code(
        "A key takes one of a few words, and this is none of them.",
        *_acts("{hook: backwards, modules: [fc1]}", "{hook: backward, modules: [fc1]}"),
    ),
    "out-of-range": Code(
        "A number is smaller or larger than it may be.",
        *_acts("{hook: forward, modules: [fc1], when: {steps: {every: 0}}}", "{hook: forward, modules: [fc1], when: {steps: {every: 1}}}"),
    ),
    "wrong-length": Code(
        "A list or a mapping has too few or too many members.",
        "version: 1\nprobes: {}",
        LEAST,
    ),
    "bad-value": Code("A value is refused by the component that takes it; the message says why."),
    "name": Code(
        "Names of probes, sinks, models and axes are letters, digits, _ and -, begin with a letter and have at most 64 characters.",
        "version: 1\nprobes:\n  ../acts: {hook: forward, modules: [fc1]}",
        LEAST,
    ),
    "pattern": Code(
        "A pattern of modules is a glob: `*` within a level, `**` for whole levels, `?`, `{a,b}`, `{8..11}`.",
        *_acts('{hook: forward, modules: ["^layers[0-9]+"]}', '{hook: forward, modules: ["layers.{0..9}"]}'),
    ),
    "value-path": Code(
        "A value is a root and keys joined by dots, such as output, output.1 or output.logits.",
        *_acts('{modules: [fc1], values: ["outputs"]}', '{modules: [fc1], values: ["output.0"]}'),
    ),
    "dtype": Code(
        "The name is not that of a dtype of torch.", *_with("tolerance: {float31: {rtol: 0.1}}", "tolerance: {float32: {rtol: 0.1}}")
    ),
    "bytes": Code(
        "An amount of bytes is a number and a unit, or `unlimited`.",
        *_with("limits: {bytes_per_epoch: 2 gigs}", "limits: {bytes_per_epoch: 2 GiB}"),
    ),
    "range": Code(
        "A schedule chooses nothing, or says one thing twice.",
        *_acts(
            "{hook: forward, modules: [fc1], when: {steps: {at: [3], every: 2}}}",
            "{hook: forward, modules: [fc1], when: {steps: {at: [3]}}}",
        ),
    ),
    "phases": Code(
        "`phases` names phases: train, eval, or names that the loop gives.",
        *_acts("{hook: forward, modules: [fc1], when: {phases: [all]}}", "{hook: forward, modules: [fc1], when: {phases: [train, eval]}}"),
    ),
    "kind-missing": Code(
        "A transform, an edit or a sink is a mapping whose `kind` says which.",
        *_acts(
            "{hook: forward, modules: [fc1], transforms: [{dtype: float16}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: cast, dtype: float16}]}",
        ),
    ),
    "kind-unknown": Code(
        "There is no such kind. A spec names kinds of a registry and never imports code.",
        *_acts(
            "{hook: forward, modules: [fc1], transforms: [{kind: os.system}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: stats}]}",
        ),
    ),
    "plugin-not-allowed": Code("The kind comes from a plug-in. A spec alone never makes a program import one; `--allow-plugin KIND` does."),
    "plugin-broken": Code("The plug-in of the kind cannot be imported, or does not bring what its entry point says."),
    "no-place": Code("A probe names no modules and no tensors.", *_acts("{hook: forward}", "{hook: forward, modules: [fc1]}")),
    "two-places": Code(
        "A probe names both modules and tensors.", *_acts("{modules: [fc1], tensors: [fc1.weight]}", "{tensors: [fc1.weight]}")
    ),
    "no-hook": Code("A probe says neither which hook nor which values.", *_acts("{modules: [fc1]}", "{hook: forward, modules: [fc1]}")),
    "hook-and-place": Code(
        "Hook `tensor` looks at `tensors`, every other hook at `modules`.",
        *_acts("{hook: tensor, modules: [fc1]}", "{hook: tensor, tensors: [fc1.weight]}"),
    ),
    "hook-and-value": Code(
        "Each value is seen by one hook: input by pre-forward, output by forward, gradients by backward, grad and data by tensor.",
        *_acts("{hook: forward, modules: [fc1], values: [input]}", "{modules: [fc1], values: [input]}"),
    ),
    "value-and-place": Code(
        "`grad` and `data` belong to tensors, all other values to modules.",
        *_acts("{tensors: [fc1.weight], values: [output]}", "{tensors: [fc1.weight], values: [data]}"),
    ),
    "value-keys": Code(
        "A parameter is one tensor, so there is nothing below its `grad` or `data`.",
        *_acts("{tensors: [fc1.weight], values: [grad.0]}", "{tensors: [fc1.weight], values: [grad]}"),
    ),
    "no-effect": Code(
        "A setting would be ignored where it stands.",
        *_acts("{hook: forward, modules: [fc1], stage: final}", "{hook: tensor, tensors: [fc1.weight], stage: final}"),
    ),
    "unknown-sink": Code(
        "A probe names a sink that the spec does not declare.",
        *_acts("{hook: forward, modules: [fc1], sinks: [capture]}", "{hook: forward, modules: [fc1], sinks: [captures]}"),
    ),
    "sink-path": Code(
        "A sink writes to a file of its own in the run directory, and to no other place.",
        *_with("sinks: {log: {kind: jsonl, path: ../log.jsonl}}", "sinks: {log: {kind: jsonl, path: log.jsonl}}"),
    ),
    "two-files": Code(
        "Two sinks would write the same files.", *_with("sinks: {a: {kind: hdf5}, b: {kind: hdf5}}", "sinks: {a: {kind: hdf5}}")
    ),
    "unknown-model": Code(
        "A model is named that `models`, or the call, does not have.",
        *_acts("{model: g, hook: forward, modules: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "no-model": Code(
        "A spec of several models must say of every probe which one it is about.",
        *_with("models: {g: Generator, d: Discriminator}", "name: one"),
    ),
    "all-disabled": Code(
        "Every probe is switched off, so the run would capture nothing.",
        *_acts("{hook: forward, modules: [fc1], enabled: false}", "{hook: forward, modules: [fc1]}"),
    ),
    "edits-not-allowed": Code(
        "A probe that rewrites what the model computes needs `allow_edits: true`, so that no reader can miss it.",
        *_acts(
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: 2.0}}",
            "{hook: forward, modules: [fc1], edit: {kind: scale, by: 2.0}}\nallow_edits: true",
        ),
    ),
    "unknown-variable": Code(
        "`${name}` stands for an entry of `vars`; environment variables are never read.",
        *_acts('{hook: forward, modules: ["${block}.conv"]}', '{hook: forward, modules: ["${block}.conv"]}\nvars: {block: features.2}'),
    ),
    "unused-variable": Code(
        "No text of the spec uses the variable, so setting it would change nothing.", *_with("vars: {block: features}", "name: one")
    ),
    "extends-without-file": Code(
        "A spec that is not in a file has no folder that `extends` could start from.", *_with("extends: [common.yaml]", "name: one")
    ),
    "missing-file": Code(
        "A spec, or a file or preset that it extends, does not exist.", *_with('extends: ["preset:nothing"]', "name: one")
    ),
    "absolute-path": Code("`extends` is relative to the file it stands in, so that a spec means the same on every machine."),
    "extends-cycle": Code("A file extends itself, or another that extends it in turn."),
    "too-many-files": Code("More files are extended than a reader could follow."),
    "bad-override": Code("`--set` takes the path of a key and a value."),
    "einops-pattern": Code(
        "A pattern of einops is `axes before -> axes after`.",
        *_acts(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f"}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b"}]}',
        ),
    ),
    "einops-axes": Code(
        "An axis vanishes without a reduction, appears from nowhere, or has a size without being named.",
        *_acts(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> b"}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> b", reduction: mean}]}',
        ),
    ),
    "einops-reduction": Code(
        "A reduction is named, but no axis vanishes.",
        *_acts(
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b", reduction: mean}]}',
            '{hook: forward, modules: [fc1], transforms: [{kind: einops, pattern: "b f -> f b"}]}',
        ),
    ),
    "empty-range": Code(
        "A range of a transform ends before it begins.",
        *_acts(
            "{hook: forward, modules: [fc1], transforms: [{kind: histogram, bins: 4, range: [1.0, 0.0]}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: histogram, bins: 4, range: [0.0, 1.0]}]}",
        ),
    ),
    "one-selection": Code(
        "`select` keeps one index, some indices, or a range: exactly one of the three.",
        *_acts(
            "{hook: forward, modules: [fc1], transforms: [{kind: select, dim: 0}]}",
            "{hook: forward, modules: [fc1], transforms: [{kind: select, dim: 0, index: 0}]}",
        ),
    ),
    "add": Code(
        "`add` takes a number or a source, exactly one of the two.",
        *_acts(
            "{hook: forward, modules: [fc1], edit: {kind: add}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: add, value: 1.0}}\nallow_edits: true",
        ),
    ),
    "mixup": Code(
        "`mixup` takes the weight itself or the parameter it is drawn with, exactly one of the two.",
        *_acts(
            "{hook: forward, modules: [fc1], edit: {kind: mixup}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: mixup, lam: 0.7}}\nallow_edits: true",
        ),
    ),
    "source": Code(
        "A source is a file, or a run with a probe.",
        *_acts(
            "{hook: forward, modules: [fc1], edit: {kind: replace, from: {run: runs/a}}}\nallow_edits: true",
            "{hook: forward, modules: [fc1], edit: {kind: replace, from: {run: runs/a, probe: acts}}}\nallow_edits: true",
        ),
    ),
}
"""A spec does not say what a spec may say."""
