"""Mean teacher: the teacher, a copy of the student, is called first in each batch, under no_grad.
---
group: models
captured: Net[1]
train: [3, 3]
cases:
  named:
    spec: {models: {student: {class: Net, instance: 1}}}
    model: student
table:
  step: one batch
  microstep: always 0
  epoch: one pass
  phase: "`train`; the teacher is another model and is not captured"
why: The model of a script is the one whose parameters an optimizer steps, never just the first that is called.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x).tanh()


student = Net()
teacher = copy.deepcopy(student)
for parameter in teacher.parameters():
    parameter.requires_grad_(False)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2, shuffle=True)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

for epoch in range(2):
    for (x,) in loader:
        with torch.no_grad():
            target = teacher(x + 0.1 * torch.randn_like(x))
        loss = nn.functional.mse_loss(student(x), target + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
    print(epoch, loss.item())
