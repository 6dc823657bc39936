"""A run's origin for tests: module trees and a loaded spec, without a plan."""

from __future__ import annotations

import json
from hashlib import sha256
from types import SimpleNamespace

from torch import nn

from probes.digest import spec_identity

RESOLVED = b'{"probes":{"acts":{}},"tolerance":{"float32":{"atol":0.001,"rtol":0.0}},"version":1}'
SPEC = b"version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n"


def tree(model: nn.Module) -> SimpleNamespace:
    return SimpleNamespace(nodes={path: SimpleNamespace(module=module) for path, module in model.named_modules(remove_duplicate=False)})


def loaded(weights: str = "start") -> SimpleNamespace:
    probes: dict[str, SimpleNamespace] = {name: SimpleNamespace(edit=None, transforms=()) for name in ("acts", "big", "grads", "rag")}
    probes["mix"] = SimpleNamespace(edit=SimpleNamespace(family="edit", kind="mixup"), transforms=())
    spec = SimpleNamespace(name="small", probes=probes, sinks={}, provenance=SimpleNamespace(weights=weights))
    return SimpleNamespace(
        spec=spec,
        source=SPEC,
        files=[("small.yaml", "00" * 32)],
        resolved_sha256=sha256(RESOLVED).hexdigest(),
        identity_of=lambda proof: spec_identity(json.loads(RESOLVED), proof),
    )
