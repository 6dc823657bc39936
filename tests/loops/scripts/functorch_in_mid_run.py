"""Per-sample gradients by `vmap(grad)` at the start and after each epoch of an ordinary training.
---
group: tools
captured: Net
train: [3, 3]
table:
  step: one batch; calls inside `torch.func` transforms are not counted
  epoch: one pass
why: Inside functorch transforms nothing is bound, captured or counted, and the next call is as before.
"""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


net = Net()
data = torch.randn(6, 3)


def loss_of(parameters, x):
    return functional_call(net, parameters, (x.unsqueeze(0),)).square().sum()


def noise():
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    gradients = vmap(grad(loss_of), in_dims=(None, 0))(parameters, data)
    return gradients["fc.weight"].std(dim=0).mean().item()


print("before", noise())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(data), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    print(epoch, noise())
