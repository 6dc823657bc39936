"""`vars`: values that replace `${name}` in the texts of a spec."""

from __future__ import annotations

from typing import Any

from probes.errors import nearest
from probes.spec.compose import problem
from probes.spec.yaml.document import Document, Path, kind_of


def substitute(document: Document) -> None:
    """Replace `${name}` by the value of a variable; a text of only `${name}` takes the variable's type."""
    given = document.data.pop("vars", {})
    if not isinstance(given, dict):
        if ("vars",) not in document.unreadable:
            document.refuse(("vars",), problem(document, ("vars",), "wrong-type", "`vars` must be a mapping of names to values"))
        given = None
    for name, value in (given or {}).items():
        _check(document, name, value)
    variables = Variables(document, given)
    document.data = variables.walk(document.data, ())
    variables.refuse_unused()


def _check(document: Document, name: str, value: Any) -> None:
    """Refuse a variable whose value is not a plain scalar."""
    path = ("vars", name)
    if isinstance(value, dict | list):
        message = f"variable `{name}` must be a text, a number or a boolean, got {kind_of(value)}"
        document.refuse(path, problem(document, path, "wrong-type", message))
    if isinstance(value, str) and "${" in value:
        message = f"`{value}` uses a variable; a value of `vars` cannot use another variable"
        document.refuse(path, problem(document, path, "unknown-variable", message))


class Variables:
    """The variables of a spec, and the names that its texts use.

    Args:
        document: where they are used.
        given: name -> value; None if `vars` cannot be read.
    """

    def __init__(self, document: Document, given: dict[str, Any] | None) -> None:
        self.document = document
        self.given = given or {}
        self.known = given is not None
        self.used: set[str] = set()
        self.meant: set[str] = set()

    def walk(self, value: Any, path: Path) -> Any:
        """A value with the variables in its texts replaced."""
        if isinstance(value, dict):
            return {key: self.walk(member, (*path, key)) for key, member in value.items()}
        if isinstance(value, list):
            return [self.walk(member, (*path, index)) for index, member in enumerate(value)]
        return self._replaced(value, path) if isinstance(value, str) and "${" in value else value

    def refuse_unused(self) -> None:
        """Refuse each variable that no text uses."""
        for name in self.given:
            path = ("vars", name)
            if name not in self.used | self.meant:
                message = f"variable `{name}` is not used, so it has no effect"
                self.document.refuse(path, problem(self.document, path, "unused-variable", message, "use it, or remove it", key=True))

    def _replaced(self, text: str, path: Path) -> Any:
        if text.startswith("${") and text.find("}") == len(text) - 1:
            return self._value(text[2:-1], path)
        parts, rest = [], text
        while "${" in rest:
            before, _, rest = rest.partition("${")
            name, closed, rest = rest.partition("}")
            if not closed:
                self._refuse(path, f"`{text}` has a `${{` that is not closed", "add `}`")
                return text
            value = self._value(name, path)
            parts += [before, str(value).lower() if isinstance(value, bool) else str(value)]
        return "".join([*parts, rest])

    def _value(self, name: str, path: Path) -> Any:
        if name in self.given:
            self.used.add(name)
            return self.given[name]
        if not self.known:
            self.document.unreadable.add(path)
            return f"${{{name}}}"
        if name.isupper() and not self.given:
            hint = "environment variables are not expanded in specs; declare it under `vars`, and set it with --set"
        else:
            self.meant |= {other for other in self.given if nearest(name, [other])}  # report a typo once
            hint = nearest(f"${{{name}}}", [f"${{{other}}}" for other in self.given])
            hint = hint or (f"declare it: `vars: {{{name}: ...}}`" if name else "write the name of a variable of `vars`")
        self._refuse(path, f"variable `${{{name}}}` is not in `vars`", hint)
        return f"${{{name}}}"

    def _refuse(self, path: Path, message: str, hint: str) -> None:
        self.document.refuse(path, problem(self.document, path, "unknown-variable", message, hint))
