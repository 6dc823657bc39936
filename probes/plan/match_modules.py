"""The values of modules that a probe names: exact paths, globs, `types` and `exclude`."""

from __future__ import annotations

import difflib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from torch.nn import Module

from probes.errors import nearest
from probes.module_glob import ModuleGlob
from probes.plan.draft import MatchedValue, ProbeDraft
from probes.plan.tree import Node
from probes.signature import MEMORY, Signature
from probes.value_path import HOOK_OF, forward_signature

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # of the name of a class


def module_values(draft: ProbeDraft) -> Iterator[MatchedValue]:
    """The values of modules that a probe selects, in the order of the model."""
    nodes = list(_modules(draft))
    if not draft.probe.ops and any(
        HOOK_OF[value.root] == "pre-forward" or value.root.startswith("grad_input") for value in draft.probe.value_paths
    ):
        _note_unknown_signatures(draft, [node for node, _ in nodes])
    for node, exact in nodes:
        for value in draft.probe.value_paths:
            for op in draft.probe.ops or ("",):
                seen = MEMORY if value.root == "memory" else Signature()
                yield MatchedValue(node.path, node, value.root, value.keys, exact, op, seen)


def _modules(draft: ProbeDraft) -> Iterable[tuple[Node, bool]]:
    probe = draft.probe
    types = _types(draft)
    excluded = _excluded(draft)
    found: dict[str, tuple[Node, bool]] = {}
    for index, text in enumerate(probe.modules):
        glob = ModuleGlob(text)
        if glob.is_exact:
            node = draft.exact(text, glob, "modules", index)
            if node is not None:
                found[node.path] = (node, True)
            continue
        matches = _matches(draft, text, glob, index)
        kept = [node for node in matches if node.path not in excluded and (types is None or isinstance_of(node.module, types))]
        for node in _able_to_fire(draft, kept):
            found.setdefault(node.path, (node, False))
        if not any(node.path in found for node in matches) and not _has_unknown_type(draft):
            _no_match(draft, text, index, matches, types)
    order = {path: place for place, path in enumerate(draft.tree.nodes)}
    return sorted(found.values(), key=lambda pair: order[pair[0].path])


def _matches(draft: ProbeDraft, text: str, glob: ModuleGlob, index: int) -> list[Node]:
    """The modules that a glob matches by their canonical paths, else by their paths in `named_modules`."""
    found = draft.tree.matching(glob)
    if found and not glob.matches(found[0].path):
        draft.note_wrapped(text, found[0].path, "modules", index)
    return found


def _excluded(draft: ProbeDraft) -> set[str]:
    """The paths that `exclude` removes; a pattern that matches no module is a problem, since more would be captured than is meant."""
    found: set[str] = set()
    for index, text in enumerate(draft.probe.exclude):
        glob = ModuleGlob(text)
        matches = draft.tree.matching(glob)
        found.update(node.path for node in matches)
        if not matches and glob.is_exact:
            draft.refuse_unknown(text, glob.exact, "exclude", index)
        elif not matches:
            _matches_nothing(draft, text, "exclude", index)
    return found


def _note_unknown_signatures(draft: ProbeDraft, nodes: list[Node]) -> None:
    """Note modules whose `forward` has no signature in Python: their inputs have no names."""
    unknown = [f"`{node.path}`" for node in nodes if not forward_signature(node.module.forward).known]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        message = f"Python knows no signature of the `forward` of {unknown[0]}{more}: inputs have positions only, such as `input.args.0`"
        draft.note("inputs-without-names", message, "modules")


def _has_unknown_type(draft: ProbeDraft) -> bool:
    """Whether a class of `types` is unknown, which explains why nothing matches."""
    return any(problem.code == "unknown-type" for problem in draft.problems)


def _able_to_fire(draft: ProbeDraft, matches: list[Node]) -> Iterator[Node]:
    """The matches that can have hooks, each module under its first matching path."""
    seen: set[int] = set()
    for node in matches:
        if not node.runs or node.scripted:
            draft.dropped.append(node.path)
        elif id(node.module) not in seen:
            seen.add(id(node.module))
            yield node


def _no_match(draft: ProbeDraft, text: str, index: int, matches: list[Node], types: Any) -> None:
    if matches:
        kinds = ", ".join(sorted({node.kind for node in matches})[:6])
        why = f"glob `{text}` matches {len(matches)} modules ({kinds}), but `types` and `exclude` remove them, or they have no `forward`"
        draft.refuse("no-match", why, "change `types` or `exclude`, or list modules that have a `forward`", "modules", index)
    else:
        _matches_nothing(draft, text, "modules", index)


def _matches_nothing(draft: ProbeDraft, text: str, key: str, index: int) -> None:
    deeper = _below(draft, f"**.{text}")
    hint = f"`**.{text}` matches {len(deeper)}, such as `{deeper[0]}`" if deeper else _near_miss(draft, text)
    draft.refuse("no-match", f"glob `{text}` matches 0 of {len(draft.tree.nodes)} modules", hint or _first_levels(draft), key, index)


def _near_miss(draft: ProbeDraft, text: str) -> str:
    """A hint with a corrected glob: its misspelt level is replaced by the nearest name in the model."""
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


def _first_levels(draft: ProbeDraft) -> str:
    """A hint with the children of the model, which are the first levels of globs."""
    tops = [path for path in draft.tree.nodes if path and "." not in path]
    if not tops:
        return 'the model has no other modules; the model itself is written ""'
    named = ", ".join(f"`{path}`" for path in tops[:6]) + (f" and {len(tops) - 6} more" if len(tops) > 6 else "")
    return f'the model has {named}; `probes tree` lists all modules, and the model itself is written ""'


def _below(draft: ProbeDraft, text: str) -> list[str]:
    glob = ModuleGlob(text)
    return [path for path in draft.tree.nodes if glob.matches(path)]


def _types(draft: ProbeDraft) -> tuple[str | type, ...] | None:
    """The classes of `types`: bare names as they are, dotted ones as classes that are already imported."""
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


def _known_type(draft: ProbeDraft, name: str, index: int) -> None:
    known = {base.__name__ for node in draft.tree.nodes.values() for base in type(node.module).__mro__}
    if name not in known:
        hint = _misspelt(name, known) or _of_that_kind(draft, name) or nearest(name, known) or _classes(draft, index)
        draft.refuse("unknown-type", f"the model has no module of class `{name}`", hint, "types", index)


def _misspelt(name: str, known: set[str]) -> str:
    """A hint with the class whose name is most similar."""
    alike = get_close_matches(name, known, 1, cutoff=0.88)
    return f"did you mean `{alike[0]}`?" if alike else ""


def _of_that_kind(draft: ProbeDraft, name: str) -> str:
    """A hint with the classes of the same kind, which is the last word of a name.

    Of `BertAttention`, which holds an attention, and `BertSelfAttention`, which is one, it names the latter.
    """
    words = [word for word in WORDS.findall(name) if len(word) > 2]
    if not words:
        return ""
    nodes = draft.tree.nodes
    paths = sorted(path for path, node in nodes.items() if words[-1].lower() in node.kind.lower() and node.runs)
    innermost = [path for path, after in zip(paths, [*paths[1:], "."], strict=False) if not after.startswith(f"{path}." if path else "")]
    counted = Counter(nodes[path].kind for path in innermost)
    named = " or ".join(f"`{kind}`" for kind, _ in counted.most_common(2))
    return f"did you mean {named}?" if named else ""


def _classes(draft: ProbeDraft, index: int) -> str:
    """A hint with the most frequent classes of the model, and with the variable that sets another."""
    counted = Counter(node.kind for node in draft.tree.nodes.values() if node.runs)
    named = ", ".join(f"`{kind}`" for kind, _ in counted.most_common(6))
    written = draft.loaded.locate(("probes", draft.name, "types", index))
    variable = re.search(r"\$\{(\w+)\}", written.source[written.column - 1 :][: written.width])
    return f"the model has {named}" + (", ..." if len(counted) > 6 else "") + (f"; --set vars.{variable[1]}=CLASS" if variable else "")


def isinstance_of(module: Module, types: tuple[str | type, ...]) -> bool:
    """Whether a module is of one of the types: a class, or a bare class name among its bases."""
    names = {base.__name__ for base in type(module).__mro__}
    return any(kind in names if isinstance(kind, str) else isinstance(module, kind) for kind in types)
