"""SAM: two forward and backward passes for each batch, around a climb and a step of the base optimizer.
---
group: steps
captured: Net
train: [[2, 2, 2], [2, 2, 2]]
table:
  step: one batch
  microstep: 0 before the ascent step, 1 after it
  epoch: one pass
why: A step ends at the first pull after an optimizer step.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for group in self.param_groups for p in group["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["climb"] = p.grad * (group["rho"] / (norm + 1e-12))
                p.add_(self.state[p]["climb"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["climb"])
        self.base_optimizer.step()
        self.zero_grad()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = SAM(net.parameters(), torch.optim.SGD, lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        net(x).square().mean().backward()
        optimizer.first_step()
        net(x).square().mean().backward()
        optimizer.second_step()
    print(epoch, net.fc.weight.sum().item())
