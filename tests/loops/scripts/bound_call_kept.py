"""A bound `call = model.__call__` that is kept over all calls, and a `generate()` that uses it.
---
group: parts
captured: Net
train: [4, 4]
eval: [3, 3]
table:
  step: "`train`: one batch; `eval`: each call of `generate`, which iterates no loader"
  epoch: one pass
  phase: "`train` and `eval`"
why: How a model is called does not matter.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.fc = nn.Linear(4, 5)

    def forward(self, tokens):
        return self.fc(self.embed(tokens).cumsum(dim=1))

    @torch.no_grad()
    def generate(self, tokens, length):
        call = self.__call__
        for _ in range(length):
            tokens = torch.cat([tokens, call(tokens)[:, -1:].argmax(-1)], dim=1)
        return tokens


net = Net()
call = net.__call__
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randint(5, (8, 4))), batch_size=2)
for epoch in range(2):
    for (tokens,) in loader:
        loss = nn.functional.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    print(epoch, loss.item(), net.generate(torch.zeros(1, 1, dtype=torch.long), 3).tolist())
    net.train()
