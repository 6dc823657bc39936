"""Truncated backpropagation through time: several optimizer steps on each batch.
---
group: steps
captured: Net
target: cell
train: [[3, 3], [3, 3]]
says: ["`clock: {step: update}`"]
cases:
  update:
    spec: {clock: {step: update}}
    train: [6, 6]
    says: []
  forward:
    spec: {clock: {step: forward}}
    train: [6, 6]
    says: []
table:
  step: one batch by default; `clock.step=update` makes each of its optimizer steps one
  microstep: each chunk of the sequence
  epoch: one pass
  phase: "`train`"
why: Several optimizer steps on one pulled batch are one step, and the first time that happens it is said, with the way out.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
CHUNK = 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(4, 3)

    def forward(self, x, state):
        for t in range(0, x.shape[1], CHUNK):
            state = torch.tanh(self.cell(torch.cat([x[:, t], state], dim=1)))
        return state


net = Net()
loader = DataLoader(TensorDataset(torch.randn(4, 6, 1)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(2):
    for (sequence,) in loader:
        state = torch.zeros(2, 3)
        for chunk in sequence.split(CHUNK, dim=1):
            state = net(chunk, state.detach())
            loss = (state - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(epoch, loss.item())
