"""Validation every two training steps, in the middle of the pass, and an evaluation of the best state at the end.
---
group: phases
captured: Net
train: [4, 4]
eval: [4, 5]
table:
  step: "`train`: one batch; `eval`: one batch of the validation loader, else one call"
  epoch: one pass over the training loader; a pass over another loader within it changes nothing
  phase: "`train` and `eval`"
why: >
  In `eval` a step is a pull of the loader that the phase itself iterates; the last call iterates none. Steps of `eval` are counted over
  all validations of the epoch.
"""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


@torch.no_grad()
def validate(net, loader):
    net.eval()
    total = sum(net(x).square().mean().item() for (x,) in loader)
    net.train()
    return total


net = Net()
train = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
valid = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best, state = float("inf"), None
for epoch in range(2):
    for step, (x,) in enumerate(train):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        if (step + 1) % 2 == 0 and (score := validate(net, valid)) < best:
            best, state = score, copy.deepcopy(net.state_dict())
            print(epoch, step, best)
net.load_state_dict(state)
net.eval()
with torch.no_grad():
    print("final", net(torch.ones(1, 3)).item())
