"""A script with arguments that ends by `sys.exit(3)` when the loss is too large.
---
group: endings
captured: Net
arguments: [--epochs, 2, --lr=0.1]
train: [2, 2]
code: 3
table:
  step: one batch
  epoch: one pass
why: A script's own exit code passes through. Its last epoch came to its last batch before the script ended, so it is complete.
"""

import argparse
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.5)
    arguments = parser.parse_args()
    print(arguments, sys.argv)
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.lr)
    for _ in range(arguments.epochs):
        for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
            optimizer.zero_grad()
            loss = (net(x) - 5).square().mean()
            loss.backward()
            optimizer.step()
    return 3 if loss.item() > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
