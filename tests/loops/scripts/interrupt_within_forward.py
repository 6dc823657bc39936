"""Ctrl-C strikes within the forward and is caught outside of the loop.
---
group: endings
captured: Net
train: [3, [1, -1]]
incomplete: [1]
table:
  step: one batch; the interrupted one is not committed
  epoch: one pass; the interrupted one is not complete
why: A step whose body raised is not committed, and the epoch's batches were left.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
calls = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        global calls
        calls += 1
        hidden = self.fc(x)
        if calls == 5:
            raise KeyboardInterrupt
        return self.head(hidden)


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
    try:
        for epoch in range(5):
            for (x,) in loader:
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
    except KeyboardInterrupt:
        print("interrupted in epoch", epoch)
    print(net.head.weight.sum().item())


main()
