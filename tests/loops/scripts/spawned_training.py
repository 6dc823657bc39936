"""All training happens in a child that `multiprocessing` starts anew.
---
group: tools
captured: null
exit: 1
says: [other processes]
table:
  step: none; the program trains in processes that are not captured
  epoch: none
  phase: none
why: A process without a rank says before its first step that it is not captured, and a run that captured nothing ends with 1.
"""

import multiprocessing

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


def work(rank, steps):
    torch.manual_seed(rank)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(2, 3)).square().mean().backward()
        optimizer.step()
    torch.save(net.state_dict(), f"rank-{rank}.pt")


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work, args=(0, 2))
    child.start()
    child.join()
    print("done")
