"""Two models of one class are compared; neither is trained.
---
group: models
captured: Net
eval: [2]
gradients: false
refused: ["instance", "Net"]
cases:
  second:
    spec: {models: {other: {class: Net, instance: 1}}}
    model: other
    captured: Net[1]
    refused: null
table:
  step: one batch of the loader
  epoch: all is epoch 0
  phase: "`eval`"
why: "Where no optimizer steps and several fit, none is guessed: refused, with how to choose one."
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


first, second = Net().eval(), Net().eval()
with torch.no_grad():
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        print((first(x) - second(x)).abs().max().item())
