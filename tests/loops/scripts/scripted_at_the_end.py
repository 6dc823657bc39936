"""The model is compiled by `torch.jit.script` after training and saved.
---
group: tools
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: Nothing of ours gets into a scripted model.
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
scripted = torch.jit.script(net.eval())
print(scripted.code.strip())
print(scripted(torch.ones(1, 3)).item())
