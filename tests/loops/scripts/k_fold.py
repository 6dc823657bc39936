"""Cross-validation: for each fold a new model, a new loader and a new optimizer.
---
group: models
captured: Net
train: [2, 2]
eval: [0, 1]
says: ["instances: all"]
table:
  step: one batch
  epoch: one pass of the first fold's training
  phase: "`train`; the fold's validation is `eval`"
why: >
  The first instance that trains is captured. Further instances that train later are named with their steps at the end, with the way to
  record them.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


data = TensorDataset(torch.randn(6, 3), torch.randn(6, 1))
scores = []
for fold in range(3):
    held_out = [2 * fold, 2 * fold + 1]
    rest = [i for i in range(6) if i not in held_out]
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Subset(data, rest), batch_size=2)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            (net(x) - y).square().mean().backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        x, y = data[held_out]
        scores.append((net(x) - y).square().mean().item())
    print(fold, scores[-1])
print(sum(scores) / 3)
