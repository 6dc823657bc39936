"""Pairs of specs for error codes, one wrong and one right, that share all lines but those given."""

from __future__ import annotations


def one_probe(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one probe."""
    head = "version: 1\nprobes:\n  acts: "
    return head + wrong, head + right


def one_edit(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one edit."""
    head = "version: 1\nallow_edits: true\nprobes:\n  acts: "
    return head + wrong, head + right


def one_rule(wrong: str, right: str) -> tuple[str, str]:
    """Two specs of one probe with a rule."""
    head = "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1], transforms: [{kind: stats}]}\nrules:\n  range: "
    return head + wrong, head + right


def above(wrong: str, right: str, probe: str = "{hook: forward, modules: [fc1]}") -> tuple[str, str]:
    """Two specs that differ in the lines above one correct probe."""
    tail = f"\nprobes:\n  acts: {probe}"
    return f"version: 1\n{wrong}{tail}", f"version: 1\n{right}{tail}"
