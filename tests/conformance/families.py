"""The parts of the conformance matrix."""

from __future__ import annotations

from tests.conformance import architectures, captum_models
from tests.conformance.synthetic import CASES
from tests.conformance.table import Family

FAMILIES = [
    Family("small models, one for each trap", "Each model contains one feature that breaks many hooks.", CASES),
    Family(
        "architectures of transformers",
        "Built from tiny configurations, without weights.",
        [architectures.case_of(name) for name in architectures.CONFIGURATIONS],
    ),
    Family(
        "models of captum's tests",
        "All of `captum.testing.helpers.basic_models`. Inputs take gradients too, as in attribution.",
        [captum_models.case_of(name) for name in captum_models.MODELS],
    ),
]
