"""Pseudo-labels: the model itself labels each batch under no_grad before it trains on it.
---
group: phases
captured: Net
train: [3, 3]
eval: [3, 3]
table:
  step: "`train`: one batch; `eval`: the call that labels it"
  epoch: one pass
  phase: "`train`; under `no_grad` it is `eval`"
why: A call of another phase between pull and training call changes nothing.
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        with torch.no_grad():
            labels = net(x).argmax(dim=1)
        loss = nn.functional.cross_entropy(net(x + 0.1 * torch.randn_like(x)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, labels.tolist(), loss.item())
