"""What one probe resolves to, while it is being resolved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from probes.errors import Problem, nearest
from probes.module_glob import ModuleGlob
from probes.plan.tree import Node, Tree, canonical, join
from probes.signature import Signature
from probes.spec import LoadedSpec, Probe


@dataclass
class Draft:
    """What one probe resolves to, while it is being resolved."""

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

    def exact(self, text: str, pattern: ModuleGlob, key: str, index: int) -> Node | None:
        """The module that a text names itself, or None after noting why not."""
        path = pattern.exact
        node = self.tree.nodes.get(path) or self.tree.nodes.get(canonical(path))
        if node is None:
            self.refuse("unknown-module", f"the model has no module `{text}`", self._instead(path), key, index)
        elif not node.runs:
            children = f"`{join(path, '*')}` names its members"
            self.refuse(
                "module-without-forward", f"`{text}` is a {node.kind}, which has no `forward` and never fires", children, key, index
            )
        elif node.scripted:
            message = f"`{text}` is a ScriptModule, on which hooks do not work"
            self.refuse("scripted-module", message, "attach before `torch.jit.script`", key, index)
        else:
            return node
        return None

    def _instead(self, path: str) -> str:
        """What may be meant by a path that is none."""
        if path in self.tree.tensors():
            return "it is a parameter or a buffer: write `hook: tensor` and `tensors`"
        deeper = [other for other in self.tree.nodes if other.endswith(f".{path}")]
        return f"did you mean `{deeper[0]}`?" if deeper else nearest(path, self.tree.nodes)


@dataclass(frozen=True)
class Target:
    """One value of one target."""

    path: str
    node: Node
    root: str
    keys: tuple[str, ...]
    exact: bool
    seen: Signature = field(default_factory=Signature)

    @property
    def value(self) -> str:
        """The value path as text."""
        return ".".join((self.root, *self.keys))
