"""Errors in the text of a spec: encoding, YAML, and values that specs do not allow."""

from __future__ import annotations

from probes.error_codes.code import Code
from probes.error_codes.examples import above, one_probe

LEAST = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}"

YAML: dict[str, Code] = {
    "empty-file": Code("The file is empty or holds only comments.", "# nothing here", LEAST),
    "too-large": Code(
        "The file is larger than the limit for a spec.",
        advice="A spec has at most 1 MiB. Long lists of modules are better written as patterns (`encoder.**`).",
    ),
    "not-utf-8": Code(
        "The file is not UTF-8.",
        advice=("An editor saved it in another encoding. Save it again as UTF-8; the message has the place of the first byte that is not."),
    ),
    "invisible-character": Code(
        "The file contains an invisible character or a control character, so two texts that look equal would differ.",
        advice=(
            "It often comes with text that is copied from a web page or a chat. Delete the character at the place that the message "
            "names, and type the text."
        ),
    ),
    "tab-indentation": Code(
        "YAML indents with spaces only.",
        advice=(
            "Replace each tab by spaces; most editors do that for YAML files by themselves. `probes fmt` then writes the usual indentation."
        ),
    ),
    "not-yaml": Code(
        "The file is not valid YAML; often a quote or a bracket is not closed.",
        *one_probe("{hook: forward, modules: [fc1}", "{hook: forward, modules: [fc1]}"),
    ),
    "unquoted-glob": Code(
        "In YAML, a text that begins with `*` is an alias, so put a pattern that begins with `*` in quotes.",
        *one_probe("{hook: forward, modules: [**.conv]}", '{hook: forward, modules: ["**.conv"]}'),
    ),
    "unquoted-braces": Code(
        "In YAML, `{` begins a mapping and `[` a list, so put a text that contains `${`, `{` or `[` in quotes.",
        *one_probe("\n    hook: forward\n    modules: [${block}.conv]", '\n    hook: forward\n    modules: ["block1.conv"]'),
    ),
    "not-formatted": Code(
        "`probes fmt` cannot keep every value and comment of the file, so it does not change it.",
        advice="Format the part by hand; the message says what would be lost.",
    ),
    "second-document": Code("A line `---` begins a second document; a file contains one spec.", *above("---", "name: one")),
    "too-many-nodes": Code(
        "The file contains more values than the limit for a spec.",
        advice="Long lists of modules are better written as patterns (`encoder.**`), and what repeats as `defaults` or `extends`.",
    ),
    "too-deep": Code(
        "Lists or mappings are nested deeper than the limit for a spec.",
        advice="A bracket too many is the usual reason.",
    ),
    "scalar-too-long": Code(
        "A text of the spec is longer than the limit.",
        advice="A quote that is not closed is the usual reason: the text then continues to the next quote.",
    ),
    "alias": Code(
        "A spec cannot use aliases (`*name`); to repeat a part, use `defaults` or `extends`.",
        *one_probe("{hook: forward, modules: [*conv]}", '{hook: forward, modules: ["*conv"]}'),
    ),
    "anchor": Code(
        "A spec cannot use anchors (`&name`); to repeat a part, use `defaults` or `extends`.",
        *above("defaults: &d {when: {phases: [eval]}}", "defaults: {when: {phases: [eval]}}"),
    ),
    "tag": Code(
        "A spec cannot use tags (`!name`), with which YAML builds objects; it contains plain data only.",
        *above("about: !!str yes", 'about: "yes"'),
    ),
    "merge-key": Code(
        "A spec cannot use the merge key `<<`; use `defaults` or `extends`.",
        *one_probe("{<<: {hook: forward}, modules: [fc1]}", "{hook: forward, modules: [fc1]}"),
    ),
    "duplicate-key": Code(
        "A mapping contains a key twice; other YAML readers silently drop one of the two.",
        *one_probe("{hook: forward, modules: [fc1], modules: [fc2]}", "{hook: forward, modules: [fc1, fc2]}"),
    ),
    "key-not-text": Code(
        "A key is a number, a list or a mapping in YAML; keys must be texts.",
        *one_probe("{hook: forward, modules: [fc1], 1: x}", "{hook: forward, modules: [fc1]}"),
    ),
    "null": Code(
        "A key has no value or a null. Remove the key to use its default.",
        *one_probe("{hook: forward, modules: [fc1], when: }", "{hook: forward, modules: [fc1]}"),
    ),
    "looks-boolean": Code(
        "`yes`, `no`, `on` and `off` are booleans in YAML 1.1 and texts in YAML 1.2. Write `true`, `false`, or put the text in quotes.",
        *one_probe("{hook: forward, modules: [fc1], enabled: on}", "{hook: forward, modules: [fc1], enabled: true}"),
    ),
    "bad-number": Code(
        "A number has a leading zero, is not decimal, not finite, or has too many digits.",
        *one_probe(
            "{hook: forward, modules: [fc1], when: {steps: {every: 010}}}", "{hook: forward, modules: [fc1], when: {steps: {every: 10}}}"
        ),
    ),
}
"""The text of a spec cannot be read."""
