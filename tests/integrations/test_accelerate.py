"""A loop with Accelerate captures what `probes run` captures of the same script."""

from __future__ import annotations

from pathlib import Path

import pytest

import probes
from tests.integrations.trainings import roots

pytest.importorskip("accelerate", reason="Accelerate is not installed; the extra `accelerate` brings it")
pytestmark = pytest.mark.filterwarnings("ignore")  # of its own packages

SPEC = {
    "version": 1,
    "probes": {
        "acts": {"hook": "forward", "modules": ["0"]},
        "grads": {"hook": "tensor", "tensors": ["2.weight"], "values": ["grad"], "stage": "final"},
    },
}
SCRIPT = """
from contextlib import ExitStack
import torch
from accelerate import Accelerator
from probes.integrations.accelerate import attach_prepared
torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = [(torch.randn(3), torch.tensor(number % 2)) for number in range(16)]
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(rows, batch_size=4))
with ExitStack() as stack:
    runs = [stack.enter_context(made(accelerator, model)) for made in CALLBACKS]
    for epoch in range(2):
        with ExitStack() as inner:
            for run in runs:
                inner.enter_context(run.epoch(epoch))
            for x, y in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
                    optimizer.step()
                    optimizer.zero_grad()
"""


@pytest.mark.torture  # importing accelerate takes longer than everything else here
def test_the_callback_captures_accumulated_batches_as_microsteps_like_probes_run(tmp_path: Path) -> None:
    script = "def Made(spec, out):\n    return lambda accelerator, model: attach_prepared(accelerator, model, spec, out)\n" + SCRIPT
    by_script, by_hand = roots(tmp_path, script, SPEC, "Made")
    assert by_hand == by_script
    clocks = probes.open(tmp_path / "own")["acts", "0"].clocks
    assert [(int(one["epoch"]), int(one["step"]), int(one["microstep"])) for one in clocks] == [
        (epoch, step, microstep) for epoch in range(2) for step in range(2) for microstep in range(2)
    ]
