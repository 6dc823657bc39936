"""Reading and validating specs; no model is needed."""

from probes.spec.load import LoadedSpec, load_spec, load_text
from probes.spec.models import Probe, Spec
from probes.spec.when import Range, When

__all__ = ["LoadedSpec", "Probe", "Range", "Spec", "When", "load_spec", "load_text"]
