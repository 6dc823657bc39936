"""The hooks that are put on modules and tensors, one file per kind."""

from probes.optional_package import require_torch

require_torch("capturing")
