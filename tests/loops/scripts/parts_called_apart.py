"""Backbone and head of a model are called one after the other; the model itself never is.
---
group: parts
captured: Net
target: head
train: [[2, 2], [2, 2]]
eval: [[2], [2]]
table:
  step: one batch of the loader that is iterated
  microstep: 0 is the backbone, 1 the head
  epoch: one pass over the training loader
  phase: "`train` and `eval`, as the whole model's `training` says"
why: Microsteps count outermost calls into the model's tree; the root itself may never be called.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.head = nn.Linear(4, 1)


net = Net()
train = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
test = DataLoader(TensorDataset(torch.randn(2, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for (x,) in train:
        features = net.backbone(x)
        loss = net.head(features).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for (x,) in test:
            print(epoch, net.head(net.backbone(x)).mean().item())
