"""Distinguish a spec from other YAML files by its content, also if it is wrong or not YAML at all."""

from __future__ import annotations

import re

_SCHEMA = re.compile(r"\A(?:---[^\n]*\n|%[^\n]*\n|[ \t]*(?:#[^\n]*)?\n)*#[^\n]*probe-spec\.v\d")
_PROBES = re.compile(r"""^(?:probes|"probes"|'probes')[ \t]*:""", re.MULTILINE)
_VERSION = re.compile(r"""^(?:version|"version"|'version')[ \t]*:[ \t]*\d+[ \t]*(?:#[^\n]*)?$""", re.MULTILINE)
_TARGETS = re.compile(r"""^[ \t-].*?\b(?:modules|tensors)["']?[ \t]*:""", re.MULTILINE)
_BRACES = re.compile(r"""\A\s*\{(?=[^\n]*?["']?probes["']?\s*:|(?:.|\n)*?^\s*["']?probes["']?\s*:)""", re.MULTILINE)
_BRACES_VERSION = re.compile(r"""["']?version["']?\s*:\s*\d+\s*[,}]""")


def is_spec(text: bytes) -> bool:
    """Whether a YAML file is meant as a spec.

    A spec names the schema `probe-spec.v1` in its first comment, or has `probes:` at the top level with either `version:` and a whole
    number next to it, or `modules:` or `tensors:` below. A version such as `1.2.3` belongs to another program.

    Args:
        text: the bytes of the file; may be malformed.
    """
    lines = text.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if _SCHEMA.search(lines):
        return True
    if _BRACES.search(lines):
        return bool(_BRACES_VERSION.search(lines))
    return bool(_PROBES.search(lines) and (_VERSION.search(lines) or _TARGETS.search(lines)))
