"""Every code that the package uses is declared once, is used, and has an example that is true."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import probes
from probes.error_codes import CODES, FILES, MODEL, PROOF, SPEC, YAML
from probes.errors import SpecError
from probes.spec import load_text
from tests.pages import parsed

PACKAGE = Path(probes.__file__).parent
FIRST = {
    "Problem",
    "Fault",
    "FileRefused",
    "Finding",
    "PydanticCustomError",
    "refuse",
    "_refuse",
    "refused",
    "note",
    "_note",
    "_at",
    "_find",
}
THIRD = {"problem"}  # (document, path, code, ...)
OTHERS = {"probes/run_directory/recover.py", "probes/commands/recover.py"}  # their Finding has no code
INTERNAL = {"faults"}  # holds other problems


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE.parent).as_posix()
        if not name.startswith("probes/error_codes/") and name not in OTHERS:
            yield name, parsed(path)


def codes_of(call: ast.Call) -> Iterator[str]:
    """The codes that a call names: at its place for functions that take one, or as `code=`."""
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = 0 if name in FIRST else 2 if name in THIRD else None
    candidates = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    candidates += [call.args[place]] if place is not None and len(call.args) > place else []
    for node in candidates:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value.replace("_", "-") if name == "PydanticCustomError" else node.value


def used() -> dict[str, str]:
    return {code: name for name, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.Call) for code in codes_of(node)}


def texts() -> set[str]:
    constants = (node for _, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {node.value.replace("_", "-") for node in constants if isinstance(node.value, str)}


def test_every_code_that_is_used_is_declared() -> None:
    assert {code: name for code, name in used().items() if code not in CODES and code not in INTERNAL} == {}


def test_every_code_that_is_declared_is_used() -> None:
    assert sorted(set(CODES) - texts()) == []


def test_no_code_is_declared_twice() -> None:
    assert sum(map(len, (YAML, SPEC, MODEL, PROOF, FILES))) == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_in_kebab_case_and_has_a_sentence(code: str) -> None:
    assert code == code.lower().replace("_", "-")
    assert CODES[code].meaning.endswith(".")


@pytest.mark.parametrize("code", [code for code, row in (YAML | SPEC).items() if row.wrong])
def test_the_wrong_example_has_this_problem_and_no_other(code: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_text(CODES[code].wrong.encode(), "example.yaml", None)
    assert [problem.code for problem in caught.value.problems] == [code]


@pytest.mark.parametrize("code", [code for code, row in (YAML | SPEC).items() if row.right])
def test_the_right_example_is_right(code: str) -> None:
    assert load_text(CODES[code].right.encode(), "example.yaml", None).spec.probes
