"""A training in a thread of its own, started twice as by a button, after a look at the model in the main thread.
---
group: loaders
captured: Net
train: [3, 3, 3, 3]
eval: [3, 2, 2, 2]
table:
  step: one batch
  epoch: one pass over the loader, in any thread
  phase: "`train`; `eval` for the look and for the validation"
why: The loop runs in the thread whose training calls an optimizer steps; the main one has only looked.
"""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
data = TensorDataset(torch.randn(6, 3))
net = Net()
net.eval()
with torch.no_grad():
    print(net(next(iter(DataLoader(data, batch_size=6)))[0]).shape)


def train():
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=2)
    for epoch in range(2):
        net.train()
        for (x,) in loader:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            for (x,) in DataLoader(data, batch_size=3):
                net(x)
        print(epoch, f"{loss.item():.6f}")


for _ in range(2):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
