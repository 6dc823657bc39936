"""Knowledge distillation: first the teacher is trained, then the student learns from it.
---
group: models
captured: Teacher
train: [3]
eval: [6]
says: [Student]
cases:
  student:
    spec: {models: {student: Student}}
    model: student
    captured: Student
    train: [3, 3]
    eval: []
    says: []
table:
  step: "`train`: one batch; `eval`: one batch for which the teacher is called"
  epoch: one pass in which the captured model trains
  phase: "the teacher's `train`, then `eval` under `no_grad`"
why: >
  The first optimizer step tells the model; another that trains later is named at the end, and the spec can choose it. The teacher has no
  training call after its own pass, so what follows is in epoch 0.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.fc(x).relu())


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


loader = DataLoader(TensorDataset(torch.randn(6, 3), torch.randint(2, (6,))), batch_size=2)
teacher, student = Teacher(), Student()
optimizer = torch.optim.Adam(teacher.parameters(), lr=0.05)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(teacher(x), y).backward()
    optimizer.step()
teacher.eval()
optimizer = torch.optim.Adam(student.parameters(), lr=0.05)
for epoch in range(2):
    for x, y in loader:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        loss = nn.functional.cross_entropy(student(x), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
