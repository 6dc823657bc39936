"""`model.forward(x)` in place of `model(x)`, in training and in evaluation.
---
group: parts
captured: Net
train: [[2, 2], [2, 2]]
eval: [[2, 2], [2, 2]]
table:
  step: one batch of the loader that is iterated
  microstep: each module that `forward` calls, since the model itself is not called
  epoch: one pass over the training loader
  phase: "`train` and `eval`"
why: Microsteps count outermost calls into the model's tree; the root itself may never be called.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.fc(x).relu())


net = Net()
train = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
test = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for (x,) in train:
        optimizer.zero_grad()
        net.forward(x).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(epoch, sum(net.forward(x).mean().item() for (x,) in test))
