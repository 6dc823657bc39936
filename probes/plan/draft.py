"""One probe while it is being resolved: the problems and notes that are found on the way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from probes.errors import Problem, nearest
from probes.module_glob import ModuleGlob
from probes.plan.tree import Node, Tree, join
from probes.signature import Signature
from probes.spec import LoadedSpec, Probe
from probes.value_path import value_text


@dataclass
class ProbeDraft:
    """One probe while it is being resolved."""

    name: str
    probe: Probe
    tree: Tree
    loaded: LoadedSpec
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, hint: str = "", *path: str | int) -> None:
        """Note a problem at a place of the probe."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.problems.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=hint))

    def note(self, code: str, message: str, *path: str | int) -> None:
        """Note something worth knowing."""
        where = self.loaded.locate(("probes", self.name, *path))
        self.notes.append(replace(where, code=code, message=f"probe `{self.name}`: {message}", hint=""))

    def note_wrapped(self, text: str, path: str, *place: str | int) -> None:
        """Note that a path was written with wrappers, which canonical paths leave out."""
        self.note("wrapped-path", f"`{text}` is captured as `{path}`: the levels of wrappers are left out", *place)

    def exact(self, text: str, glob: ModuleGlob, key: str, index: int) -> Node | None:
        """The module that a text names itself, or None after noting why not."""
        path = glob.exact
        node = self.tree.find(path)
        if node is None:
            self.refuse("unknown-module", f"the model has no module `{text}`", self._instead(path), key, index)
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

    def _instead(self, path: str) -> str:
        """What may be meant by a path that is not a module."""
        if path in self.tree.tensors():
            return "it is a parameter or a buffer: write `hook: tensor` and `tensors`"
        deeper = [other for other in self.tree.nodes if other.endswith(f".{path}")]
        return f"did you mean `{deeper[0]}`?" if deeper else nearest(path, self.tree.nodes)


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
        seen: what is known of the value.
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
