"""DataLoader workers that persist, a Pool that prepares the data, and a fork that ends by itself.
---
group: tools
captured: Net
train: [3, 3]
table:
  step: one batch
  epoch: one pass
why: Processes of the script's own count nothing.
"""

import multiprocessing
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor(self.rows[index])


def prepare(i):
    return [float(i), float(i * i), 1.0]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        rows = pool.map(prepare, range(6))
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    loader = DataLoader(Squares(rows), batch_size=2, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
    for epoch in range(2):
        for x in loader:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), flush=True)
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            net(torch.ones(1, 3))
        os._exit(0)
    os.waitpid(child, 0)
