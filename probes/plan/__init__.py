"""From a Spec and a model to a Plan."""

from probes.optional_package import require_torch

require_torch("resolving a spec against a model")

from probes.plan.binding import Binding, Plan  # noqa: E402  # torch is checked first
from probes.plan.resolve import resolve  # noqa: E402  # torch is required first
from probes.plan.tree import Node, Tree  # noqa: E402  # torch is required first

__all__ = ["Binding", "Node", "Plan", "Tree", "resolve"]
