"""A batch that is too large raises in the forward and is done again in halves.
---
group: endings
captured: Net
train: [[1, 3], [1, 3]]
table:
  step: one batch, also where its first call raised
  microstep: 0 the call that raised, 1 and 2 the halves
  epoch: one pass
why: The call raised, but an optimizer step followed before the next pull, so the batch was not skipped; what was captured before the exception stays.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        hidden = self.fc(x)
        if len(x) > 3:
            raise RuntimeError("out of memory")
        return self.head(hidden)


def collate(rows):
    return torch.stack(rows)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(torch.randn(6, 3), batch_sampler=[[0, 1], [2, 3, 4, 5]], collate_fn=collate)
for epoch in range(2):
    for x in loader:
        optimizer.zero_grad()
        try:
            net(x).square().mean().backward()
        except RuntimeError as error:
            print(error)
            for half in x.chunk(2):
                (net(half).square().mean() / 2).backward()
        optimizer.step()
    print(epoch, net.head.weight.sum().item())
