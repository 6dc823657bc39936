"""Steps of optimizers that are a part of another step."""

from __future__ import annotations

from types import FrameType

from torch.optim import Optimizer


def is_part_of_a_step(optimizer: Optimizer, frame: FrameType) -> bool:
    """Whether a step of an optimizer runs within another one that changes its parameters.

    PyTorch calls its hooks in each class whose `step` it has wrapped: a derived class that calls `super().step()` calls them twice for one
    step, and so does an optimizer that steps others.

    Args:
        optimizer: the optimizer that steps.
        frame: the frame of PyTorch that calls the hooks; those around it of the same code are of other steps.
    """
    around = frame.f_back
    while around is not None:
        if around.f_code is frame.f_code:
            other = around.f_locals.get("self")
            if other is optimizer or (isinstance(other, Optimizer) and not _held(other).isdisjoint(_held(optimizer))):
                return True
        around = around.f_back
    return False


def _held(optimizer: Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
