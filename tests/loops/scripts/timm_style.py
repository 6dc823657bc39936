"""`train_one_epoch` with mixup, a loss scaler object, gradient clipping, an EMA of the model, and validation of both.
---
group: frameworks
captured: Net
train: [2, 2]
eval: [1, 1]
table:
  step: one batch
  epoch: one call of `train_one_epoch`
  phase: "`train`, and `eval` for the validation of the model; the EMA is another instance, whose validation is not captured"
why: The base rule.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


class NativeScaler:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)

    def __call__(self, loss, optimizer, clip=None, parameters=None):
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, clip)
        self.scaler.step(optimizer)
        self.scaler.update()


class ModelEma(nn.Module):
    def __init__(self, model, decay=0.9):
        super().__init__()
        self.module, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for slow, fast in zip(self.module.state_dict().values(), model.state_dict().values()):
            slow.copy_(self.decay * slow + (1 - self.decay) * fast)


def train_one_epoch(epoch, model, loader, optimizer, scaler, ema):
    model.train()
    for x, y in loader:
        order, lam = torch.randperm(len(x)), 0.7
        output = model(lam * x + (1 - lam) * x[order])
        loss = lam * nn.functional.cross_entropy(output, y) + (1 - lam) * nn.functional.cross_entropy(output, y[order])
        optimizer.zero_grad()
        scaler(loss, optimizer, clip=1.0, parameters=model.parameters())
        ema.update(model)
    print("train", epoch, loss.item())


def validate(model, loader):
    model.eval()
    with torch.no_grad():
        return sum((model(x).argmax(1) == y).sum().item() for x, y in loader)


torch.manual_seed(0)
model = Net()
ema = ModelEma(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = NativeScaler()
train = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(2, (8,))), batch_size=4, shuffle=True, drop_last=True)
valid = DataLoader(TensorDataset(torch.randn(4, 4), torch.randint(2, (4,))), batch_size=4)
for epoch in range(2):
    train_one_epoch(epoch, model, train, optimizer, scaler, ema)
    print("validate", epoch, validate(model, valid), validate(ema.module, valid))
