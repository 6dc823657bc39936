"""A trainer that owns the loop: a sanity check of the validation first, hooks by name, a root that is never called.
---
group: frameworks
captured: Module
target: net.fc
train: [3, 3]
eval: [4, 2]
table:
  step: "`train`: one batch; `eval`: one batch of the validation loader, the sanity check's too"
  microstep: always 0; the loop calls the module's `net`
  epoch: one pass; the sanity check belongs to the first
  phase: "`train` and `eval`"
why: Calls before the first pass belong to the first epoch. The root's `training` gives the phase, though it is never called.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential()
        self.net.add_module("fc", nn.Linear(3, 1))

    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, index):
        return self.net(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Trainer:
    def __init__(self, max_epochs, sanity=2):
        self.max_epochs, self.sanity = max_epochs, sanity

    def validate(self, module, loader, limit=None):
        module.eval()
        with torch.no_grad():
            outputs = []
            for index, batch in enumerate(loader):
                if limit is not None and index >= limit:
                    break
                outputs.append(module.validation_step(batch, index))
        module.train()
        return torch.stack(outputs).mean().item()

    def fit(self, module, train, valid):
        print("sanity", self.validate(module, valid, self.sanity))
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            for index, batch in enumerate(train):
                optimizer.zero_grad()
                loss = module.training_step(batch, index)
                loss.backward()
                optimizer.step()
            print(epoch, loss.item(), self.validate(module, valid))


torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
Trainer(max_epochs=2).fit(Module(), train, valid)
