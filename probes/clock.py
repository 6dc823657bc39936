"""The place of a capture in a run."""

from __future__ import annotations

from typing import NamedTuple

LOSS_SCALE = "loss_scale"
"""The leaf of the series, one for each probe and phase, of the loss scales of its gradients."""


class Clock(NamedTuple):
    """The coordinates of one capture; those of the forward call that armed it.

    Attributes:
        epoch: epoch number from 0.
        phase: `train`, `eval` or a name the loop gave.
        step: step within (epoch, phase), from 0.
        global_step: steps of this phase in all earlier epochs of the run, plus `step`.
        microstep: outermost call into the model's tree within the step, from 0; -1 outside any.
        call: call of this module within the outermost call, from 0.
        backward: how often this arming has fired before; 0 for values of a forward.
        rank: rank of the process.
    """

    epoch: int
    phase: str
    step: int
    global_step: int
    microstep: int
    call: int
    backward: int
    rank: int


class SeriesKey(NamedTuple):
    """The name of a series: all captures of one (probe, target, leaf, phase).

    Attributes:
        probe: name of the probe.
        target: canonical path of the module, parameter or buffer; `""` is the root.
        leaf: value path of the tensor, such as `output`, `output.logits`, `input.x`, `grad`.
        phase: `train`, `eval` or a name the loop gave.
    """

    probe: str
    target: str
    leaf: str
    phase: str

    def __str__(self) -> str:
        """`probe/target:leaf[@phase]`, as `probes ls` prints it and `probes show` takes it."""
        return f"{self.probe}/{self.target}:{self.leaf}" + (f"@{self.phase}" if self.phase != "train" else "")
