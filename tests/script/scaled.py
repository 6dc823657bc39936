"""Scripts that train under a loss scale, for frameworks that would use one on a GPU alone."""

from __future__ import annotations

from probes.reader.run import RunReader

SCALE = 1024.0
SPEC = """
version: 1
probes:
  grads: {{hook: backward, modules: [{0}]}}
  used: {{hook: tensor, tensors: [{1}], stage: final}}
"""


def check(scaled: RunReader, plain: RunReader, module: str, parameter: str) -> None:
    """Every gradient is stored with the scale, and is without it what the run without a scale has; a power of 2 costs no digit."""
    grads, others = scaled["grads", module], plain["grads", module]
    assert len(grads) == len(others) > 0
    assert set(grads.loss_scale.tolist()) == {SCALE}
    assert set(others.loss_scale.tolist()) == {1.0}
    assert (grads.unscaled() == others.numpy()).all()
    assert (grads.numpy() == SCALE * others.numpy()).all()
    assert (scaled["used", parameter].numpy() == plain["used", parameter].numpy()).all()
