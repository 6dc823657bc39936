"""A denoising diffusion model: random times, an EMA copy by deepcopy in mid-run, samples drawn from the copy.
---
group: models
captured: Denoiser
train: [3, 3]
table:
  step: one batch
  epoch: one pass
  phase: "`train`; sampling uses the copy, which is another instance"
why: A deepcopy is another model, and carries nothing that captures.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
STEPS = 4
alphas = torch.linspace(0.99, 0.5, STEPS).cumprod(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(STEPS, 2)
        self.fc = nn.Linear(2, 2)

    def forward(self, x, t):
        return self.fc(x + self.time(t))


model, ema = Denoiser(), None
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(6, 2)), batch_size=2):
        t = torch.randint(STEPS, (len(x),))
        noise = torch.randn_like(x)
        a = alphas[t].unsqueeze(1)
        loss = nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ema is None:
            ema = copy.deepcopy(model).eval().requires_grad_(False)
        for slow, fast in zip(ema.parameters(), model.parameters()):
            slow.lerp_(fast.detach(), 0.1)
    x = torch.randn(1, 2)
    with torch.no_grad():
        for t in reversed(range(STEPS)):
            x = x - 0.1 * ema(x, torch.tensor([t]))
    print(epoch, loss.item(), x.sum().item(), len(ema.fc._forward_hooks), len(ema.fc._forward_pre_hooks))
