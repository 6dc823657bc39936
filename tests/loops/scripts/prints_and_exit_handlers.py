"""A script that prints a lot, by `print`, by writing to the descriptor, by logging and from exit handlers.
---
group: endings
captured: Net
train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: What a script prints is its own; exit handlers run as without probes, and find the model as it was.
"""

import atexit
import logging
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s %(message)s")
log = logging.getLogger("train")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
atexit.register(lambda: print("hooks at exit", len(net.fc._forward_hooks), len(net._forward_pre_hooks)))
atexit.register(print, "first to run", flush=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in tqdm(loader, file=sys.stderr):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        sys.stdout.write(f"\repoch {epoch} loss {loss.item():.4f}")
        sys.stdout.flush()
    print()
    log.info("epoch %d", epoch)
    os.write(1, b"straight to the descriptor\n")
    print("to stderr", file=sys.stderr)
