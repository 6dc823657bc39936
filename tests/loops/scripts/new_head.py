"""Transfer learning: the pretrained net is evaluated, then gets another head, and only the head trains.
---
group: models
captured: Net
gradient_phases: [train]
train: [3, 3]
eval: [3, 0]
table:
  step: "`train`: one batch; `eval`: one batch of the first evaluation"
  epoch: one pass in which the model trains; the evaluation belongs to the first
  phase: "`eval`, then `train`"
why: The base rule; the new head is a part of the model from its first call on.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        return self.fc(self.body(x).relu())


net = Net()
loader = DataLoader(TensorDataset(torch.randn(6, 3), torch.randint(2, (6,))), batch_size=2)
net.eval()
with torch.no_grad():
    print(sum(float(net(x).sum()) for x, _ in loader))
net.requires_grad_(False)
net.fc = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.fc.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
