"""A VAE: trained by calling it, evaluated by `model.encode(x)` and `model.decode(z)`.
---
group: parts
captured: VAE
target: mean
train: [3, 3]
eval: [[3, 3], [3, 3]]
table:
  step: "`train`: one batch; `eval`: one batch of its loader"
  microstep: "`eval`: each module that is called by itself, here two in `encode` and one in `decode`"
  epoch: one pass over the training loader
  phase: "`train` and `eval`"
why: >
  Parts that are called apart are outermost calls into the model's tree; in `eval` a step is a pull of the phase's own loader, so the
  captures of one batch stay together.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)
        self.log_var = nn.Linear(4, 2)
        self.out = nn.Linear(2, 4)

    def encode(self, x):
        return self.mean(x), self.log_var(x)

    def decode(self, z):
        return self.out(z)

    def forward(self, x):
        mean, log_var = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decode(z), mean, log_var


vae = VAE()
optimizer = torch.optim.Adam(vae.parameters(), lr=0.01)
train = DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2)
test = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=2)
for epoch in range(2):
    vae.train()
    for (x,) in train:
        y, mean, log_var = vae(x)
        loss = (x - y).square().sum() - 0.5 * (1 + log_var - mean**2 - log_var.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    vae.eval()
    with torch.no_grad():
        print(epoch, sum((vae.decode(vae.encode(x)[0]) - x).abs().mean().item() for (x,) in test))
