"""From a Plan to live hooks, and from a loop to steps and epochs."""

from probes.optional_package import require_torch

require_torch("capturing")
