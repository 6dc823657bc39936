"""Write docs/reference: every command, every key and every code, from the help texts, the classes and the table of codes.

Usage: python docs/reference.py [FOLDER]     (tests/test_reference.py compares)
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner
from pydantic import BaseModel

from probes import errors
from probes.cli import VERBS, cli
from probes.component import Component
from probes.error_codes import FILES, MODEL, PROOF, SPEC, YAML, Code
from probes.errors import SpecError
from probes.spec import load_text
from probes.spec.models import Against, Defaults, Expect, Limits, ModelSelector, Probe, Provenance, Rule, Spec, StepRule, Tolerance
from probes.spec.schema import spec_schema
from probes.spec.when import Condition, Range, Trigger, When

FIRST_KEYS = ("version", "name", "about", "extends", "vars")
FOLDER = Path(__file__).parent / "reference"
WRITTEN = "Written by `python docs/reference.py`."
EXITS = {
    0: "success",
    1: "negative result: runs differ, a run does not verify, a file is malicious, a probe captured nothing, `fmt --check` finds a change",
    2: "wrong usage, an invalid spec, or a spec that does not fit the model",
    3: "a problem of the environment: a missing file, a full disk, a missing optional dependency",
    4: "a bug in probes",
    130: "interrupted",
    141: "nobody reads the output any more, such as after `| head -1`",
}
COMPLETION = """\
## Completion

To complete verbs, options, presets, error codes, runs, series and module paths in your shell, add its line to its start-up file:

```sh
eval "$(_PROBES_COMPLETE=bash_source probes)"     # ~/.bashrc; bash 4.4 or later
eval "$(_PROBES_COMPLETE=zsh_source probes)"      # ~/.zshrc
_PROBES_COMPLETE=fish_source probes | source      # ~/.config/fish/completions/probes.fish
```
"""
PARTS: dict[str, tuple[type[BaseModel], str]] = {
    "The spec": (Spec, ""),
    "A probe": (Probe, "`probes: {NAME: ...}`"),
    "A schedule": (When, "`when` of a probe and of `defaults`"),
    "A range": (Range, "each coordinate of `when`"),
    "A second tensor": (Against, "`against` of a probe"),
    "A condition": (Condition, "`where` of a probe"),
    "A trigger": (Trigger, "`when.trigger`"),
    "Expect": (Expect, "`expect` of a probe and of `defaults`"),
    "A model": (ModelSelector, "`models: {NAME: {...}}`"),
    "A rule": (Rule, "`rules: {NAME: {...}}`"),
    "The clock": (StepRule, "`clock`"),
    "Defaults": (Defaults, "`defaults`"),
    "Limits": (Limits, "`limits`"),
    "Provenance": (Provenance, "`provenance`"),
    "Tolerance": (Tolerance, "`tolerance: {DTYPE: ...}`"),
}
TITLES = {part.__name__: title for title, (part, _) in PARTS.items()}
CODES = {
    "Reading YAML": (YAML, "`probes check` and every verb that reads a spec report these codes; no model is needed."),
    "The spec": (SPEC, "`probes check` and every verb that reads a spec report these codes, for keys and values; no model is needed."),
    "The spec and a model, or a run": (MODEL, "`probes plan`, `probes.attach` and `probes run` report these codes."),
    "Proof": (PROOF, "`probes verify`, `probes replay` and `probes recover` report these findings."),
    "Files": (FILES, "Every verb that reads files of a run reports these codes and refuses the file."),
}


def commands() -> str:
    """Every verb with its options, and what exit codes say."""
    exits = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXITS.items())
    head = f"# Commands\n\n{WRITTEN} `probes VERB --help` says the same.\n\n| exit code | meaning |\n|---|---|\n{exits}\n\n"
    head += "`probes run` exits with the exit code of the script, or 1 if the script ends with 0 but the spec was not satisfied.\n\n"
    sections = (f"\n## {title}\n{''.join(_verb(name) for name in rows)}" for title, rows in VERBS.items())
    return head + COMPLETION + "".join(sections)


def _verb(name: str) -> str:
    with patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "100"}):
        text = CliRunner().invoke(cli, [name, "--help"], prog_name="probes", terminal_width=100, catch_exceptions=False).output
    return f"\n### {name}\n\n```text\n{text.rstrip()}\n```\n"


def exit_codes() -> set[int]:
    """The exit codes of the errors that there are."""
    found = {value.exit_code for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.ProbesError)}
    return {0, 130, 141, *found}


def spec() -> str:
    """Every key of every part."""
    schema = spec_schema()
    head = f"# Keys\n\n{WRITTEN} [The spec](../spec.md) explains them, [kinds](../kinds.md) has those of transforms, edits and sinks.\n"
    return head + "".join(_part(title, part, where, schema) for title, (part, where) in PARTS.items())


def _part(title: str, part: type[BaseModel], where: str, schema: Any) -> str:
    node = schema if part is Spec else schema["$defs"][part.__name__]
    names = list(node["properties"])
    order = dict.fromkeys([*(name for name in FIRST_KEYS if part is Spec), *names])
    rows = "\n".join(_row(name, node, part) for name in order)
    about = ((part.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip(), where)
    return (
        f"\n## {title}\n\n{': '.join(filter(None, reversed(about)))}\n\n| key | type | default | description |\n|---|---|---|---|\n{rows}\n"
    )


def _row(name: str, node: Any, part: type[BaseModel]) -> str:
    field = next((info for key, info in part.model_fields.items() if (info.alias or key) == name), None)
    found = node["properties"][name]
    about = found.get("description", "").replace("|", "\\|")
    return f"| `{name}` | {_kind(found)} | {_default(field)} | {about} |"


def _kind(node: Any) -> str:
    """What a value is, in words."""
    if "anyOf" in node:
        words = [_kind(one) for one in node["anyOf"] if not str(one.get("$ref", "")).endswith("Variable")]
        return " or ".join(dict.fromkeys(words))
    if "$ref" in node:
        title = TITLES[node["$ref"].rpartition("/")[2]].lower()
        return f"[{title}](#{title.replace(' ', '-')})"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{word}`" for word in node["enum"])
    if "oneOf" in node:
        kinds = [_kind(one) for one in node["oneOf"] if one.get("$ref", "").rpartition("/")[2] in TITLES or one.get("type") == "string"]
        return " or ".join(kinds) or "a mapping with `kind`"
    if node.get("type") == "array":
        return f"a list of {_plural(_kind(node['items']))}"
    if node.get("type") == "object":
        return f"a mapping from names to {_plural(_kind(node['additionalProperties']))}"
    return {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}[node["type"]]


def _plural(words: str) -> str:
    return re.sub(r"\ba (text|number|whole number|mapping)\b", r"\1s", words)


def _default(field: Any) -> str:
    if field is None:
        return ""
    if field.is_required():
        return "(required)"
    value = field.default
    if isinstance(value, BaseModel | Component) or value in (None, (), "", {}) or field.default_factory is not None:
        return ""
    shown = list(value) if isinstance(value, tuple) else str(value).lower() if isinstance(value, bool) else value
    return f"`{shown}`".replace("'", "")


def codes() -> str:
    """Every code of every problem."""
    head = f"# Codes\n\n{WRITTEN} `probes explain CODE` says the same.\n"
    return head + "".join(f"\n## {title}\n\n{about}\n{''.join(_rows(table))}" for title, (table, about) in CODES.items())


def _rows(table: dict[str, Code]) -> Iterator[str]:
    for code, row in table.items():
        yield f"\n### {code}\n\n{row.meaning}\n" + (f"\n{row.advice}\n" if row.advice else "")
        if row.wrong:
            yield f"\nWrong:\n\n```yaml\n{row.wrong}\n```\n{_said(row.wrong)}"
        if row.right:
            yield f"\nRight:\n\n```yaml\n{row.right}\n```\n"


def _said(wrong: str) -> str:
    """What is said of a wrong spec."""
    try:
        load_text(wrong.encode(), "spec.yaml", None)
    except SpecError as error:
        return f"\n```text\n{error}\n```\n"
    return ""


PAGES = {"commands.md": commands, "spec.md": spec, "codes.md": codes}

if __name__ == "__main__":
    for name, write in PAGES.items():
        Path(*sys.argv[1:2] or [FOLDER], name).write_text(write(), encoding="utf-8")
