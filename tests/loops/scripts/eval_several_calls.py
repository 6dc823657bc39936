"""An evaluation with test-time augmentation: several calls for each batch.
---
group: phases
captured: Net
train: [2, 2]
eval: [[3, 3], [3, 3]]
table:
  step: "`train`: one batch; `eval`: one batch of its loader"
  microstep: "`eval`: each of the augmented calls"
  epoch: one pass over the training loader
  phase: "`train` and `eval`"
why: In `eval` a step is a pull of the loader that the phase itself iterates; its calls are microsteps.
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
train = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
valid = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for (x,) in train:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for (x,) in valid:
            views = [x, x.flip(1), -x]
            print(epoch, torch.stack([net(view) for view in views]).mean().item())
