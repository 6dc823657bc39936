"""`vars`: what `${name}` stands for in the texts of a spec."""

from __future__ import annotations

from typing import Any

from probes.errors import Problem, nearest
from probes.spec.compose import problem
from probes.spec.yaml.reader import Document, Path
from probes.spec.yaml.scalars import kind_of


def substitute(document: Document) -> list[Problem]:
    """Replace `${name}` by the value of a variable; a text that is nothing else takes the variable's type."""
    given = document.data.pop("vars", {})
    if not isinstance(given, dict):
        return [problem(document, ("vars",), "wrong-type", "`vars` must be a mapping of names to values")]
    problems = [
        problem(document, ("vars", name), "wrong-type", f"variable `{name}` must be a text, a number or a boolean, got {kind_of(value)}")
        for name, value in given.items()
        if isinstance(value, dict | list)
    ]
    problems += [
        problem(document, ("vars", name), "unknown-variable", f"'{value}' refers to a variable, which no value of `vars` may do")
        for name, value in given.items()
        if isinstance(value, str) and "${" in value
    ]
    variables = Variables(document, given)
    document.data = variables.walk(document.data, ())
    return [*problems, *variables.problems, *variables.unused()]


class Variables:
    """The variables of a spec, and which of them its texts use.

    Args:
        document: where problems are.
        given: name -> value.
    """

    def __init__(self, document: Document, given: dict[str, Any]) -> None:
        self.document = document
        self.given = given
        self.used: set[str] = set()
        self.meant: set[str] = set()
        self.problems: list[Problem] = []

    def walk(self, value: Any, path: Path) -> Any:
        """A value with the variables in its texts replaced."""
        if isinstance(value, dict):
            return {key: self.walk(member, (*path, key)) for key, member in value.items()}
        if isinstance(value, list):
            return [self.walk(member, (*path, index)) for index, member in enumerate(value)]
        return self._replaced(value, path) if isinstance(value, str) and "${" in value else value

    def unused(self) -> list[Problem]:
        """A problem for each variable that no text names."""
        message = "variable `{}` is not used, so it would have no effect"
        left = [name for name in self.given if name not in self.used | self.meant]
        return [
            problem(self.document, ("vars", name), "unused-variable", message.format(name), "use it, or remove it", key=True)
            for name in left
        ]

    def _replaced(self, text: str, path: Path) -> Any:
        if text.startswith("${") and text.find("}") == len(text) - 1:
            return self._value(text[2:-1], path)
        parts, rest = [], text
        while "${" in rest:
            before, _, rest = rest.partition("${")
            name, closed, rest = rest.partition("}")
            if not closed:
                self.problems.append(
                    problem(self.document, path, "unknown-variable", f"'{text}' has a `${{` that is not closed", "add `}`")
                )
                return text
            value = self._value(name, path)
            parts += [before, str(value).lower() if isinstance(value, bool) else str(value)]
        return "".join([*parts, rest])

    def _value(self, name: str, path: Path) -> Any:
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        if name.isupper() and not self.given:
            hint = "environment variables are not expanded in specs; declare it under `vars`, and set it with --set"
        else:
            self.meant |= {other for other in self.given if nearest(name, [other])}  # a typo is told once
            hint = nearest(f"${{{name}}}", [f"${{{other}}}" for other in self.given])
            hint = hint or (f"declare it: `vars: {{{name}: ...}}`" if name else "name a variable of `vars`")
        self.problems.append(problem(self.document, path, "unknown-variable", f"variable `${{{name}}}` is not in `vars`", hint))
        return f"${{{name}}}"
