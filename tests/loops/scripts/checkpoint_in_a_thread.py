"""A thread copies the model and tries the copy, again and again, while the loop trains the model.
---
group: models
captured: Net[0]
train: [3, 3]
table:
  step: each batch
  microstep: one
  epoch: one pass
why: >
  The copy fits the spec too, and is called before the first optimizer step. It takes no pass from the loop, and is dropped by the step while
  its own call is not over.
"""

import copy
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        found = self.fc(x)
        if threading.current_thread() is not threading.main_thread():
            tried.set()
            stepped.wait(30)
        return found


def check():
    for _ in range(4):
        copied.wait(30)
        copied.clear()
        trial = copy.deepcopy(net).eval()
        with torch.no_grad():
            trial(torch.ones(1, 3))
        done.set()


copied, tried, stepped, done = (threading.Event() for _ in range(4))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
checker = threading.Thread(target=check)
checker.start()
number = 0
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        if number < 4:
            tried.clear(), stepped.clear(), done.clear(), copied.set()
            tried.wait(30)
        optimizer.step()
        if number < 4:
            stepped.set()
            done.wait(30)
        number += 1
    print(epoch, net.fc.weight.sum().item())
checker.join()
