"""LBFGS: the optimizer calls a closure, which calls the model, several times in one step.
---
group: steps
captured: Net
train: [[3, 3], [3, 3]]
table:
  step: one `optimizer.step(closure)`, so one batch
  microstep: each evaluation of the closure
  epoch: one pass
why: The step ends at the first pull after the optimizer step.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3, tolerance_change=0, tolerance_grad=0)
for epoch in range(2):
    for x, y in DataLoader(TensorDataset(torch.randn(8, 3), torch.randn(8, 1)), batch_size=4):

        def closure():
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            return loss

        print(epoch, optimizer.step(closure).item())
