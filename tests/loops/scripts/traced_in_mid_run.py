"""The model is traced by `torch.jit.trace` before training and after each epoch, and the traced one is used.
---
group: tools
captured: Net
train: [2, 2]
table:
  step: one batch; calls that a tracer makes are not counted
  epoch: one pass
why: Inside tracers nothing is bound, captured or counted.
"""

import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x).tanh()


net = Net()
example = torch.ones(1, 3)
print(torch.jit.trace(net, example, check_trace=False)(example).item())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    traced = torch.jit.trace(net, example, check_trace=False)
    print(epoch, traced(example).item(), [name for name, _ in traced.named_modules()])
