"""A plain research loop: batches of a DataLoader, validation after each epoch.
---
group: steps
captured: Net
train: [3, 3]
eval: [2, 2]
table:
  step: one batch, ended by `optimizer.step()`
  microstep: always 0
  epoch: one pass over the training loader
  phase: "`train`; the validation under `model.eval()` is `eval`, a step for each batch of its loader"
why: The base of all rules.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.relu(self.fc(x)))


train = DataLoader(TensorDataset(torch.randn(12, 3), torch.randn(12, 1)), batch_size=4, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(6, 3), torch.randn(6, 1)), batch_size=3)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
criterion = nn.MSELoss()

for epoch in range(2):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"{epoch} loss {loss.item():.6f}")
    model.eval()
    with torch.no_grad():
        total = sum(criterion(model(x), y).item() for x, y in valid)
    print(f"{epoch} validation {total:.6f}")
