"""An endless generator that iterates the loader again and again, and a training that counts steps, with accumulation.
---
group: loaders
captured: Net
train: [[2, 2], [2], [2]]
incomplete: [2]
table:
  step: one optimizer step, also over the end of a pass
  microstep: each batch that is accumulated
  epoch: it ends with the step in which a new pass begins; the last is not complete, since its batches are left
why: >
  Four optimizer steps are four steps. The generator begins the passes by itself and the loop knows of none, so a step goes on over the end
  of a pass, and the next epoch begins behind it.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def cycle(loader):
    while True:
        for data in loader:
            yield data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


class Trainer:
    def __init__(self, model, dataset, steps=4, accumulate=2):
        self.model, self.steps, self.accumulate = model, steps, accumulate
        self.batches = cycle(DataLoader(dataset, batch_size=2, shuffle=True))
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def train(self):
        for step in range(self.steps):
            for _ in range(self.accumulate):
                (x,) = next(self.batches)
                loss = self.model(x).square().mean() / self.accumulate
                loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(f"step {step}: {loss.item():.6f}")


torch.manual_seed(0)
Trainer(Net(), TensorDataset(torch.randn(6, 3))).train()
