"""Wasserstein GAN: the critic steps twice on each batch, then the generator once.
---
group: steps
spec: {models: {c: Critic}}
model: c
captured: Critic
train: [[5, 5], [5, 5]]
says: ["`clock: {step: update}`"]
cases:
  update:
    spec: {models: {c: Critic}, clock: {step: update}}
    train: [[2, 2, 3, 2, 1], [2, 2, 3, 2, 1]]
    says: []
table:
  step: one batch by default; `clock.step=update` makes each optimizer step of the critic one
  microstep: each call of the critic
  epoch: one pass
why: >
  Several optimizer steps on one pulled batch are one step, which is said once. With `update` each optimizer step of the model ends one
  at the next pull or training call; the call for the generator's loss comes after one, so it opens the next.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def forward(self, x):
        return self.fc(x)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, z):
        return self.layer(z)


critic, generator = Critic(), Generator()
opt_c = torch.optim.RMSprop(critic.parameters(), lr=0.01)
opt_g = torch.optim.RMSprop(generator.parameters(), lr=0.01)
for epoch in range(2):
    for (real,) in DataLoader(TensorDataset(torch.randn(4, 2)), batch_size=2):
        for _ in range(2):
            fake = generator(torch.randn(2, 1)).detach()
            loss = critic(fake).mean() - critic(real).mean()
            opt_c.zero_grad()
            loss.backward()
            opt_c.step()
            for p in critic.parameters():
                p.data.clamp_(-0.1, 0.1)
        opt_g.zero_grad()
        (-critic(generator(torch.randn(2, 1))).mean()).backward()
        opt_g.step()
    print(epoch, loss.item())
