"""A training that saves a checkpoint, and goes on from it with a model that is built anew.
---
group: models
captured: Net
train: [3]
says: ["instances: all"]
cases:
  second:
    spec: {models: {resumed: {class: Net, instance: 1}}}
    model: resumed
    captured: Net[1]
    train: [3, 3]
    says: []
table:
  step: one batch
  epoch: one pass of the captured instance
why: The model that goes on is another instance; it is named at the end with its steps.
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


def train(epochs, loader, checkpoint=None):
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    first = 0
    if checkpoint is not None:
        state = torch.load(checkpoint)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, epochs):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "checkpoint.pt")


loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
train(1, loader)
train(3, loader, "checkpoint.pt")
