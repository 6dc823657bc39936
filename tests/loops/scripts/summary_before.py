"""A table of the layers, taken by hooks in a forward pass in eval mode before training, as torchinfo does.
---
group: phases
captured: Net
train: [2, 2]
eval: [1, 0]
table:
  step: "`train`: one batch; `eval`: the call for the table"
  epoch: one pass; the call for the table belongs to the first epoch
  phase: "`eval`, then `train`"
why: Calls before the first pass belong to the first epoch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.fc(x).relu())


def summary(model, size):
    rows, handles = [], []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, o, name=name: rows.append((name, type(m).__name__, tuple(o.shape)))))
    was = model.training
    model.eval()
    with torch.no_grad():
        model(torch.zeros(size))
    model.train(was)
    for handle in handles:
        handle.remove()
    for row in rows:
        print(row)


torch.manual_seed(0)
net = Net()
summary(net, (1, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, net.head.weight.sum().item())
