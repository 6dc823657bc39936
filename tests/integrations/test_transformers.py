"""The callback for the Trainer captures what `probes run` captures of the same script."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.integrations.trainings import roots

missing = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} is not installed; the extras `minilm` and `dev` bring them"),
    pytest.mark.filterwarnings("ignore"),  # of its own packages
]


@pytest.mark.torture  # importing transformers takes longer than everything else here
def test_the_callback_captures_what_probes_run_captures(tmp_path: Path) -> None:
    from tests.script.test_trainer import SCRIPT, SPEC

    script = "from probes.integrations.transformers import TrainerProbes\n" + SCRIPT.replace(".train()\n", "").rstrip()
    script = script.removesuffix(")") + ", callbacks=CALLBACKS).train()\n"
    script = script.replace('TrainingArguments("out"', f"TrainingArguments({str(tmp_path / 'out')!r}")
    by_script, by_callback = roots(tmp_path, script, yaml.safe_load(SPEC), "TrainerProbes")
    assert by_callback == by_script
    assert len(by_callback) == 2
