"""Embeddings of a data set: inference under inference_mode, the result is saved.
---
group: phases
captured: Net
eval: [3]
gradients: false
table:
  step: one batch of the loader
  epoch: all is epoch 0
  phase: "`eval`"
why: Where no optimizer steps, the only fitting instance.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return nn.functional.normalize(self.fc(x), dim=1)


net = Net().eval()
rows = []
with torch.inference_mode():
    for (x,) in DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2):
        rows.append(net(x).numpy())
np.save("embeddings.npy", np.concatenate(rows))
print(np.concatenate(rows).sum())
