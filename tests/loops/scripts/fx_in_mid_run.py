"""The model is symbolically traced by torch.fx between epochs, and its graph is printed.
---
group: tools
captured: Net
train: [2, 2]
eval: [1, 1]
table:
  step: "`train`: one batch; `eval`: the real call of the traced module's layers"
  epoch: one pass
  phase: "`train`; what the GraphModule calls are the model's own layers, under `no_grad` in `eval`"
why: Inside tracers nothing is captured. The GraphModule holds the model's own layer, so its call is an outermost call into the model's tree.
"""

import torch
from torch import fx, nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x).tanh()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    graph = fx.symbolic_trace(net)
    with torch.no_grad():
        print(epoch, [node.op for node in graph.graph.nodes], graph(torch.ones(1, 3)).item())
