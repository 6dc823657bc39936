"""Encoder and decoder are two models of their own with one optimizer for both.
---
group: models
captured: Encoder
target: hidden
train: [2, 2]
cases:
  both_fit:
    target: fc
    train: []
    refused: [Encoder, Decoder, "models:"]
  named:
    spec: {models: {decoder: Decoder}}
    model: decoder
    captured: Decoder
    target: fc
    train: [2, 2]
table:
  step: one batch
  epoch: one pass
why: >
  One optimizer step owns parameters of both. A spec whose paths fit only one is bound to that one; where both fit, none is guessed,
  and the run is refused with the line to write.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.hidden = nn.Linear(3, 2)

    def forward(self, x):
        return self.hidden(self.fc(x).relu())


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 4)

    def forward(self, z):
        return self.fc(z)


encoder, decoder = Encoder(), Decoder()
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
loader = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=2)
for epoch in range(2):
    for (x,) in loader:
        loss = nn.functional.mse_loss(decoder(encoder(x)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
