"""All parameters are replaced within an epoch: once by `load_state_dict(assign=True)`, once by `Module.to`; each time with a new optimizer.
---
group: models
captured: Net
train: [6, 6]
table:
  step: one batch
  epoch: one pass
why: The base rule; the new optimizer steps the model's parameters, which are other objects than when the epoch began.
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
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for index, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(12, 3)), batch_size=2)):
        if index == 2:
            net.load_state_dict({name: tensor.clone() for name, tensor in net.state_dict().items()}, assign=True)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if index == 4:
            torch.__future__.set_overwrite_module_params_on_conversion(True)
            net.to(torch.float32)
            torch.__future__.set_overwrite_module_params_on_conversion(False)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
