"""The model is exported by `torch.export` after the first epoch.
---
group: tools
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: Inside tracers nothing is bound, captured or counted.
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
        return self.fc(x).tanh()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    if epoch == 0:
        program = torch.export.export(net, (torch.ones(1, 3),), strict=False)
        print([node.name for node in program.graph.nodes], sorted(program.state_dict))
print(net.fc.weight.sum().item())
