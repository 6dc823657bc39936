"""Accelerate, the library itself: `prepare`, and `accumulate` over two batches with the rest at the end of an epoch.
---
group: frameworks
captured: Net
train: [[2, 1], [2, 1]]
table:
  step: one optimizer step that was not skipped by `accumulate`
  microstep: each batch that is accumulated
  epoch: one pass over the prepared loader
why: The library's optimizer steps only where gradients are synchronised, which it does at the end of a pass too.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for epoch in range(2):
    for (x,) in loader:
        with accelerator.accumulate(net):
            loss = net(x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(epoch, loss.item())
