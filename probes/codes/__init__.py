"""Every code of every problem: what it means, and for a spec an example that is wrong and one that is right."""

from probes.codes.code import Code
from probes.codes.model import MODEL
from probes.codes.proof import FILES, PROOF
from probes.codes.spec import SPEC, YAML

CODES: dict[str, Code] = YAML | SPEC | MODEL | PROOF | FILES

__all__ = ["CODES", "FILES", "MODEL", "PROOF", "SPEC", "YAML", "Code"]
