"""Fine-tuning in eval mode, as with frozen batch norm: the model trains although `model.training` is false.
---
group: phases
captured: Net
train: []
eval: [6]
gradient_phases: [eval]
says: ["model.train()"]
table:
  step: one batch of the loader
  epoch: all is epoch 0, since there is no training call
  phase: "`eval`, for all of it; a line says that an optimizer steps on gradients of `eval` calls"
why: The phase is `train` when the outermost call enters with `root.training` and grad enabled. An epoch ends at a training call.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.fc(x))


net = Net().eval()
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, net.norm.running_mean.sum().item(), net.fc.weight.sum().item())
