from __future__ import annotations

import json
from textwrap import dedent

from probes.commands.tree import tree
from tests.commands.conftest import Invoke, Written, squeezed

SCRIPT = """
    import torch
    from torch import nn

    class Pool(nn.Module):
        def forward(self, x):
            return (x.softmax(-1) * x).sum(dim=1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.pool = nn.Linear(4, 3), Pool()

        def forward(self, x):
            hidden = torch.relu(self.linear(x))
            values, _ = (hidden + 1).max(dim=-1)
            return self.pool(hidden) + values

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
"""


def test_each_module_is_listed_with_the_functions_that_it_calls_itself(invoke: Invoke, written: Written) -> None:
    written("train.py", dedent(SCRIPT))
    lines = squeezed(invoke(tree, "--ops", "--watch", "train.py").out)
    text = "\n".join(lines)
    assert "operations of the model (Net):\nrelu[0] float32[5, 3]\nadd[0] float32[5, 3]\n" in text
    assert "max[0] values float32[5], indices int64[5]\nadd[1] float32[5]\n" in text
    assert "operations of pool (Pool):\nsoftmax[0] float32[5, 3]\nmul[0] float32[5, 3]\nsum[0] float32[5]\n" in text


def test_json_has_the_full_names(invoke: Invoke, written: Written) -> None:
    written("train.py", dedent(SCRIPT))
    rows = {row["path"]: row for row in json.loads(invoke(tree, "--ops", "--json", "--watch", "train.py").out)[""]}
    assert [one["op"] for one in rows["linear"]["operations"]] == ["linear[0]"]
    assert rows["pool"]["operations"][0] == {"op": "softmax[0]", "function": "torch.Tensor.softmax", "outputs": {"output": "float32[5, 3]"}}


def test_operations_need_a_call(invoke: Invoke, written: Written) -> None:
    said = invoke(tree, "--ops", "--model", "model:Net")
    assert said.code == 2
    assert "--ops needs a call of the model: use `--watch SCRIPT" in said.err + said.out
