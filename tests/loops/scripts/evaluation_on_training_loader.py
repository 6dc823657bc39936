"""The accuracy on the training set, over the training loader itself, after each epoch.
---
group: phases
captured: Net
train: [3, 3]
eval: [3, 3]
table:
  step: "`train`: one batch; `eval`: one batch"
  epoch: one pass in which the model trains; a pass that only evaluates does not count
  phase: "`train` and `eval`"
why: The epoch ends at the first training call on a pass that begins anew, and in the evaluation there is none.
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


net = Net()
loader = DataLoader(TensorDataset(torch.randn(12, 3), torch.randint(2, (12,))), batch_size=4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(epoch, sum((net(x).argmax(1) == y).sum().item() for x, y in loader))
