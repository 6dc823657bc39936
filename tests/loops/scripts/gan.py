"""A GAN: discriminator and generator are updated in turn on each batch, each by its own optimizer.
---
group: models
captured: Generator
spec: {models: {g: Generator}}
model: g
train: [[2, 2, 2], [2, 2, 2]]
cases:
  both:
    spec: {models: {g: Generator, d: Discriminator}, clock: {model: g}}
    others: [Discriminator]
    train: [[5, 5, 5], [5, 5, 5]]
  discriminator:
    spec: {models: {d: Discriminator}}
    captured: Discriminator
    model: d
    train: [[3, 3, 3], [3, 3, 3]]
table:
  step: one batch, with everything that is done with it after the step of the generator's optimizer
  microstep: each call of the model, here 0 for the discriminator's batch and 1 for its own
  epoch: one pass
  phase: "`train`"
why: >
  What a GAN does with the model after its update belongs to the batch. Two classes fit, so the spec names the one that is meant.
  Of several models under one clock, a microstep is an outermost call into any of them, so that captures of both can be joined.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, z):
        return self.fc(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


g, d = Generator(), Discriminator()
opt_g = torch.optim.Adam(g.parameters(), lr=0.01)
opt_d = torch.optim.Adam(d.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(2, 1), torch.zeros(2, 1)
for epoch in range(2):
    for (real,) in loader:
        opt_d.zero_grad()
        loss_d = bce(d(real), ones) + bce(d(g(torch.randn(2, 2)).detach()), zeros)
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = bce(d(g(torch.randn(2, 2))), ones)
        loss_g.backward()
        opt_g.step()
    print(f"{epoch} d {loss_d.item():.6f} g {loss_g.item():.6f}")
