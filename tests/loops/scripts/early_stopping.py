"""Early stopping: the loop over epochs is left when the validation no longer improves.
---
group: endings
captured: Net
train: [2, 2]
eval: [1, 1]
table:
  step: one batch
  epoch: one pass; the last is complete, since all of its batches were used
  phase: "`train`, and `eval` for the validation"
why: An epoch that is left after its last batch is complete.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=3.0)
loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
best = float("inf")
for epoch in range(10):
    net.train()
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        score = net(torch.ones(2, 3)).square().mean().item()
    print(epoch, score)
    if score > best:
        print("no better, stopping")
        break
    best = score
