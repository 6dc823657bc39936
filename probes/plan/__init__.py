"""From a Spec and a model to a Plan."""

from probes.plan.binding import Binding, Plan
from probes.plan.resolve import resolve
from probes.plan.tree import Node, Tree

__all__ = ["Binding", "Node", "Plan", "Tree", "resolve"]
