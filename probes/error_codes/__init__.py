"""Every error code: its meaning, and for specs a wrong and a right example."""

from probes.error_codes.code import Code
from probes.error_codes.damage import DAMAGE
from probes.error_codes.files import FILES
from probes.error_codes.model import MODEL
from probes.error_codes.notes import NOTES
from probes.error_codes.spec import SPEC
from probes.error_codes.spec_text import YAML

PROOF: dict[str, Code] = DAMAGE | NOTES
CODES: dict[str, Code] = YAML | SPEC | MODEL | PROOF | FILES

__all__ = ["CODES", "FILES", "MODEL", "PROOF", "SPEC", "YAML", "Code"]
