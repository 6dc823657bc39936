"""A fixed network gives the loss, and is called first, on the target, under no_grad.
---
group: models
captured: Net
train: [3, 3]
table:
  step: one batch
  epoch: one pass
  phase: "`train`; the fixed network is another model"
why: The model is the one whose parameters an optimizer steps. The fixed network fits the spec too, and is called first.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)


features = Features().eval().requires_grad_(False)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in DataLoader(TensorDataset(torch.randn(6, 4), torch.randn(6, 4)), batch_size=2):
        with torch.no_grad():
            wanted = features(y)
        loss = nn.functional.l1_loss(features(net(x)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
