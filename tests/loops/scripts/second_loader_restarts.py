"""Semi-supervised training: one loop over labelled batches, unlabelled ones by `next` from a loader that begins anew when it is empty.
---
group: loaders
captured: Net
train: [[2, 2, 2, 2], [2, 2, 2, 2]]
table:
  step: one labelled batch and the unlabelled one
  microstep: 0 labelled, 1 unlabelled
  epoch: one pass over the labelled loader; passes of the other do not count
why: >
  The unlabelled loader begins anew in the middle of the loop. The epoch belongs to the loader that began it: while that pass goes on,
  another loader that begins anew ends nothing.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
labelled = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
unlabelled = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
others = iter(unlabelled)
for epoch in range(2):
    for (x,) in labelled:
        try:
            (u,) = next(others)
        except StopIteration:
            others = iter(unlabelled)
            (u,) = next(others)
        loss = net(x).square().mean() + 0.1 * net(u).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
