"""One probe while it is being resolved, with its problems and notes so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from probes.errors import Problem, nearest
from probes.module_glob import ModuleGlob
from probes.plan.tree import Node, Tree, join
from probes.signature import Signature
from probes.spec import LoadedSpec, Probe
from probes.value_path import value_text

LIKELY, ABBREVIATED = 0.6, 0.8  # minimal similarity of a suggested name, and of a name that matches a class
SHORTEST = 3  # letters of an abbreviation
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # of a class name


@dataclass
class ProbeDraft:
    """One probe while it is being resolved."""

    name: str
    probe: Probe
    tree: Tree
    loaded: LoadedSpec
    given: Mapping[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, hint: str = "", *path: str | int) -> None:
        """Add a problem at a place of the probe."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.problems.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=hint))

    def note(self, code: str, message: str, *path: str | int) -> None:
        """Add a note."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.notes.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=""))

    def note_wrapped(self, text: str, path: str, *place: str | int) -> None:
        """Add the note that a path was written with wrappers, which canonical paths omit."""
        self.note("wrapped-path", f"`{text}` is captured as `{path}`: the levels of wrappers are left out", *place)

    def exact(self, text: str, glob: ModuleGlob, key: str, index: int) -> Node | None:
        """The module with an exact path, or None after adding the reason as a problem."""
        path = glob.exact
        node = self.tree.find(path)
        if node is None:
            self.refuse_unknown(text, path, key, index)
        elif not node.runs:
            hint = f"`{join(path, '*')}` matches its children"
            self.refuse("module-without-forward", f"`{text}` is a `{node.kind}`; it has no `forward` and is never called", hint, key, index)
        elif node.scripted:
            message = f"`{text}` is a ScriptModule, on which hooks do not work"
            self.refuse("scripted-module", message, "attach before `torch.jit.script`", key, index)
        else:
            if node.path != path:
                self.note_wrapped(text, node.path, key, index)
            return node
        return None

    def refuse_unknown(self, text: str, path: str, key: str, index: int) -> None:
        """Add the problem that the model has no module with an exact path."""
        self.refuse("unknown-module", f"the model has no module `{text}`", self._instead(path), key, index)

    def _instead(self, path: str) -> str:
        """Advice for a path that is not a module."""
        if path in self.tree.tensors():
            return "it is a parameter or a buffer: write `hook: tensor` and `tensors`"
        deeper = [other for other in self.tree.nodes if other.endswith(f".{path}")]
        likely = deeper[0] if deeper else likely_path(path, self.tree)
        return f"did you mean `{likely}`?" if likely else nearest(path, self.tree.nodes)


def likely_path(path: str, tree: Tree) -> str:
    """The module that a wrong path probably means; empty if none is likely.

    The place counts before the letters: level by level the child of that name, or the one whose own name or class is most like it. So
    `attn` means the child of class `SelfAttention`, and not a module with similar letters somewhere else.
    """
    found = ""
    for level in path.split("."):
        children = [node for other, node in tree.nodes.items() if other and other.rpartition(".")[0] == found]
        named = {node.path.rpartition(".")[2]: node for node in children}
        likely = max(named, key=lambda name: _likeness(level, named[name]), default="")
        if level not in named and (not likely or level.isdecimal() or _likeness(level, named[likely]) < LIKELY):
            return ""
        found = named[level if level in named else likely].path
    return found if tree.nodes[found].runs else ""


def _likeness(name: str, node: Node) -> float:
    """How likely a name means a module: by the letters of the module's name, or by its class."""
    own = SequenceMatcher(None, name.lower(), node.path.rpartition(".")[2].lower()).ratio()
    words = [word.lower() for word in WORDS.findall(node.kind)]
    return max(own, ABBREVIATED if any(_abbreviates(name.lower(), word) for word in words) else 0.0)


def _abbreviates(name: str, word: str) -> bool:
    """Whether a name is a word, or its first letter and others of it in order."""
    letters = iter(word)
    return len(name) >= SHORTEST and name[0] == word[0] and all(letter in letters for letter in name)


@dataclass(frozen=True)
class MatchedValue:
    """One value of one module or tensor that a probe names.

    Attributes:
        path: canonical path of the module or tensor.
        node: the module, or the one that owns the tensor.
        root: the root of the value path.
        keys: the keys after it.
        exact: whether the spec names it itself, rather than a glob that matches it.
        op: the operation of the module whose value it is; empty for a value of the module itself.
        seen: what is known about the value.
    """

    path: str
    node: Node
    root: str
    keys: tuple[str, ...]
    exact: bool
    op: str = ""
    seen: Signature = field(default_factory=Signature)

    @property
    def value(self) -> str:
        """The value path as text."""
        return value_text(self.root, self.keys, self.op)
