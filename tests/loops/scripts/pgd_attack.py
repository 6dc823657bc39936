"""Adversarial training: for each batch an attack in eval mode, with gradients with respect to the images, before the training call.
---
group: phases
captured: Net
train: [3, 3]
eval: [6, 6]
gradient_phases: [train, eval]
table:
  step: "`train`: one batch; `eval`: each call of the attack"
  epoch: one pass
  phase: "the attack under `model.eval()` is `eval`, even if it runs backward"
why: >
  A call of another phase between pull and training call changes nothing. The attack iterates no loader, so each of its calls is a
  step. Gradients are due in any phase in which a backward runs.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x)


def attack(model, x, y, steps=2, size=0.1):
    model.eval()
    adversarial = x.clone()
    for _ in range(steps):
        adversarial.requires_grad_()
        loss = nn.functional.cross_entropy(model(adversarial), y)
        (gradient,) = torch.autograd.grad(loss, adversarial)
        adversarial = (adversarial + size * gradient.sign()).detach()
    model.train()
    return adversarial


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3), torch.randint(2, (6,))), batch_size=2)
for epoch in range(2):
    for x, y in loader:
        x = attack(model, x, y)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
