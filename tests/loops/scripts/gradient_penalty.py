"""WGAN-GP: the gradient of the output with respect to the input is part of the loss, so backward runs twice.
---
group: steps
captured: Critic
train: [[2, 2], [2, 2]]
table:
  step: one batch
  microstep: 0 the critic's score, 1 the penalty's
  epoch: one pass
why: "A gradient keeps the clock of the forward call that armed it, plus `backward`, how often that arming has fired."
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.fc(x)))


critic = Critic()
optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 2)), batch_size=2):
        loss = critic(x).mean()
        mixed = (0.5 * x).requires_grad_()
        (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        loss = loss + 10 * (gradient.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
