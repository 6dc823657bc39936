"""`model.train()` is called once before the loop, and forgotten after the first validation.
---
group: phases
captured: Net
train: [3]
eval: [5]
gradient_phases: [train, eval]
says: ["model.train()"]
table:
  step: "`train`: one batch; `eval`: one batch of the loader that is iterated, else one call"
  epoch: all is epoch 0, since no training call comes after the first pass
  phase: "`eval` from the first validation on; a line says that an optimizer steps on gradients of `eval` calls"
why: The phase is what `root.training` says. The reader must be told, since the script has a bug or means it.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.fc(self.dropout(x))


net = Net()
net.train()
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(epoch, net(torch.ones(1, 3)).item())
