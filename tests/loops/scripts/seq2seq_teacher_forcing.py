"""Sequence to sequence with teacher forcing: the decoder is called once for each token of one call of the model.
---
group: parts
captured: Seq2Seq
target: decoder
train: [2, 2]
table:
  step: one batch
  microstep: always 0; within it the decoder has calls 0 to 3
  epoch: one pass
why: The calls of one module within one outermost call are its `call`.
"""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.cell = nn.GRUCell(4, 4)
        self.out = nn.Linear(4, 6)

    def forward(self, token, state):
        state = self.cell(self.embed(token), state)
        return self.out(state), state


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(3, 4, batch_first=True)
        self.decoder = Decoder()

    def forward(self, source, target, forcing=0.5):
        state = self.encoder(source)[1][0]
        token = torch.zeros(len(source), dtype=torch.long)
        outputs = []
        for t in range(target.shape[1]):
            logits, state = self.decoder(token, state)
            outputs.append(logits)
            token = target[:, t] if random.random() < forcing else logits.argmax(1)
        return torch.stack(outputs, dim=1)


random.seed(0)
torch.manual_seed(0)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for source, target in DataLoader(TensorDataset(torch.randn(4, 5, 3), torch.randint(6, (4, 4))), batch_size=2):
        loss = nn.functional.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
