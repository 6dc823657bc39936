"""The whole model and a deep copy of it are pickled in mid-run, and the files are what counts.
---
group: tools
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: Nothing of ours gets into a pickle or a deep copy, so the files are the same bytes as without probes.
"""

import copy
import pickle

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
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for i, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        if i == 0:
            torch.save(net, f"model-{epoch}.pt")
    torch.save(copy.deepcopy(net), f"copy-{epoch}.pt")  # a plain pickle of a tensor holds its address
    print(epoch, b"probes" in open(f"model-{epoch}.pt", "rb").read(), b"probes" in pickle.dumps(copy.deepcopy(net)))
