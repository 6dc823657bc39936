"""Meta-learning: for each task an inner update of functional parameters, then one outer step over all tasks.
---
group: steps
captured: Net
train: [[4, 4, 4]]
table:
  step: one outer `optimizer.step()`
  microstep: each call, inner and outer, of each task
  epoch: all is epoch 0, since there is no loader
why: Inner updates are no optimizer steps. `functional_call` calls the model itself, with other parameters.
"""

import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(1, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.fc(x).relu())


def task():
    amplitude = torch.rand(1)
    x = torch.randn(4, 1)
    return x, amplitude * torch.sin(x)


model = Net()
meta = torch.optim.Adam(model.parameters(), lr=0.01)
for iteration in range(3):
    meta.zero_grad()
    losses = []
    for _ in range(2):
        x, y = task()
        parameters = dict(model.named_parameters())
        loss = nn.functional.mse_loss(functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        fast = {name: value - 0.1 * grad for (name, value), grad in zip(parameters.items(), gradients)}
        losses.append(nn.functional.mse_loss(functional_call(model, fast, (x,)), y))
    torch.stack(losses).sum().backward()
    meta.step()
    print(iteration, [round(loss.item(), 6) for loss in losses])
