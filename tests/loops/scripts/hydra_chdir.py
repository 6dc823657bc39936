"""A script that makes a folder for each job and changes into it, as Hydra does, before it builds the model.
---
group: tools
captured: Net
out: default
train: [2]
table:
  step: one batch
  epoch: one pass
why: The run directory is where the command was given, not where the script went.
"""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
os.makedirs("outputs/job-0")
os.chdir("outputs/job-0")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
with open("result.txt", "w") as file:
    file.write(f"{loss.item()}\n")
