"""What older versions of torch, and some machines, lack: marks that leave tests out, each with its reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

import pytest
import torch

from probes.optional_package import OLDEST_COMPILER, is_older


def _indexes_float8() -> bool:
    try:
        torch.zeros(2).to(torch.float8_e4m3fn)[torch.tensor([0])]
    except RuntimeError:
        return False
    return True


compiles_with_hooks = pytest.mark.skipif(
    is_older(torch.__version__, OLDEST_COMPILER), reason="torch before 2.12 drops hooks from compiled graphs, so that they are refused"
)
# Where ATEN_CPU_CAPABILITY asks for less than the CPU has, inductor of torch 2.13 makes kernels that leave out the last elements.
has_inductor = pytest.mark.skipif(
    shutil.which("g++") is None or "ATEN_CPU_CAPABILITY" in os.environ, reason="inductor needs a C++ compiler, and the CPU's own kernels"
)
indexes_float8 = pytest.mark.skipif(not _indexes_float8(), reason="this torch cannot index float8 tensors")
shards_on_cpu = pytest.mark.skipif(is_older(torch.__version__, (2, 7)), reason="fully_shard of torch before 2.7 fails on the CPU")


def dtypes_here(names: Iterable[str]) -> list[str]:
    """The dtypes that this torch has: float8_e8m0fnu came with 2.7, float4_e2m1fn_x2 with 2.8."""
    return [name for name in names if hasattr(torch, name)]
