"""Training and validation under autocast: layers give bfloat16.
---
group: steps
captured: Net
train: [2, 2]
eval: [1, 1]
table:
  step: one batch
  epoch: one pass
  phase: "`train`, and `eval` for the validation"
why: The base rule; the values have another type.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.fc(x).relu())


net = Net()
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(8, 3), torch.randint(2, (8,)))
for epoch in range(2):
    net.train()
    for x, y in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        accuracy = (net(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
    print(epoch, loss.item(), accuracy.item())
