"""The module values that a probe names."""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from torch.nn import Module

from probes.errors import nearest
from probes.hooks.memory import MEMORY
from probes.module_glob import ModuleGlob
from probes.plan.draft import Draft, Target
from probes.plan.tree import Node
from probes.signature import Signature


def module_targets(draft: Draft) -> Iterator[Target]:
    """The module values a probe names, in the order of the model."""
    probe = draft.probe
    nodes = list(_modules(draft))
    for node, exact in nodes:
        for value in probe.value_paths:
            yield Target(node.path, node, value.root, value.keys, exact, MEMORY if value.root == "memory" else Signature())


def _modules(draft: Draft) -> Iterable[tuple[Node, bool]]:
    probe = draft.probe
    types = _types(draft)
    excluded = [ModuleGlob(text) for text in probe.exclude]
    found: dict[str, tuple[Node, bool]] = {}
    for index, text in enumerate(probe.modules):
        pattern = ModuleGlob(text)
        if pattern.is_exact:
            node = draft.exact(text, pattern, "modules", index)
            if node is not None:
                found[node.path] = (node, True)
            continue
        matches = [node for node in draft.tree.nodes.values() if pattern.matches(node.path)]
        for node in _kept(draft, matches):
            if not any(other.matches(node.path) for other in excluded) and (types is None or isinstance_of(node.module, types)):
                found.setdefault(node.path, (node, False))
        if not any(pattern.matches(path) for path in found) and not _said_of_types(draft):
            _no_match(draft, text, index, matches, types)
    order = {path: place for place, path in enumerate(draft.tree.nodes)}
    return sorted(found.values(), key=lambda pair: order[pair[0].path])


def _said_of_types(draft: Draft) -> bool:
    """Whether it has been said that a class of `types` is not there, so that no match needs no second word."""
    return any(problem.code == "unknown-type" for problem in draft.problems)


def _kept(draft: Draft, matches: list[Node]) -> Iterator[Node]:
    """The matches that can fire, each module under its first matching path."""
    seen: set[int] = set()
    for node in matches:
        if not node.runs or node.scripted:
            draft.dropped.append(node.path)
        elif id(node.module) not in seen:
            seen.add(id(node.module))
            yield node


def _no_match(draft: Draft, text: str, index: int, matches: list[Node], types: Any) -> None:
    total = len(draft.tree.nodes)
    if matches:
        kinds = ", ".join(sorted({node.kind for node in matches})[:6])
        why = f"pattern `{text}` matches {len(matches)} modules, but none that can fire and is left by `types` and `exclude` ({kinds})"
        draft.refuse("no-match", why, "change `types` or `exclude`, or name modules with a forward of their own", "modules", index)
        return
    deeper = _below(draft, f"**.{text}")
    hint = f"`**.{text}` matches {len(deeper)}, such as `{deeper[0]}`" if deeper else _near_miss(draft, text)
    draft.refuse("no-match", f"pattern `{text}` matches 0 of {total} modules", hint or _what_there_is(draft), "modules", index)


def _near_miss(draft: Draft, text: str) -> str:
    """A hint with the pattern as it would match: its misspelt level by the nearest name in the model."""
    names = sorted({level for path in draft.tree.nodes for level in path.split(".") if level})
    levels = text.split(".")
    for place, level in enumerate(levels):
        if level in names or any(mark in level for mark in "*?{"):
            continue
        for close in difflib.get_close_matches(level, names, 3):
            mended = ".".join([*levels[:place], close, *levels[place + 1 :]])
            if matched := _below(draft, mended):
                return f"did you mean `{mended}`? it matches {len(matched)}"
    return nearest(text, draft.tree.nodes)


def _what_there_is(draft: Draft) -> str:
    """A hint with what patterns begin with in this model, whose root no glob matches."""
    tops = [path for path in draft.tree.nodes if path and "." not in path]
    if not tops:
        return 'the model holds no other module; itself is written ""'
    named = ", ".join(f"`{path}`" for path in tops[:6]) + (f" and {len(tops) - 6} more" if len(tops) > 6 else "")
    return f'below the model there is {named}; `probes tree` shows all, and the model itself is written ""'


def _below(draft: Draft, text: str) -> list[str]:
    pattern = ModuleGlob(text)
    return [path for path in draft.tree.nodes if pattern.matches(path)]


def _types(draft: Draft) -> tuple[str | type, ...] | None:
    """What `types` says: bare class names as they are, dotted ones as classes already imported."""
    if not draft.probe.types:
        return None
    found: list[str | type] = []
    for index, text in enumerate(draft.probe.types):
        module, _, name = text.rpartition(".")
        if not module:
            found.append(text)
            _known_type(draft, text, index)
            continue
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            found.append(kind)
        else:
            draft.refuse(
                "unknown-type",
                f"type `{text}` is not a class of an imported module",
                f"write `{name}`, or import `{module}` first",
                "types",
                index,
            )
    return tuple(found)


def _known_type(draft: Draft, name: str, index: int) -> None:
    known = {base.__name__ for node in draft.tree.nodes.values() for base in type(node.module).__mro__}
    if name not in known:
        hint = nearest(name, known) or _classes(draft, index)
        draft.refuse("unknown-type", f"no module of the model is a `{name}`", hint, "types", index)


def _classes(draft: Draft, index: int) -> str:
    """A hint with the classes that most modules of the model have, and with the variable that names another."""
    counted = Counter(node.kind for node in draft.tree.nodes.values() if node.runs)
    named = ", ".join(f"`{kind}`" for kind, _ in counted.most_common(6))
    written = draft.loaded.locate(("probes", draft.name, "types", index))
    variable = re.search(r"\$\{(\w+)\}", written.source[written.column - 1 :][: written.width])
    return f"it has {named}" + (", ..." if len(counted) > 6 else "") + (f"; --set vars.{variable[1]}=CLASS" if variable else "")


def isinstance_of(module: Module, types: tuple[str | type, ...]) -> bool:
    """Whether a module is of one of the types: a class, or a bare class name among its bases."""
    names = {base.__name__ for base in type(module).__mro__}
    return any(kind in names if isinstance(kind, str) else isinstance(module, kind) for kind in types)
