"""Grad-CAM on a model that only infers: forward and backward in eval mode, no optimizer.
---
group: phases
captured: Net
target: features
eval: [3]
gradient_phases: [eval]
table:
  step: one batch of the loader
  epoch: all is epoch 0
  phase: "`eval`, in which gradients are due too"
why: Where no optimizer steps, the only fitting instance. Gradients are due in any phase in which a backward runs.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 2, 3)
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.features(x).relu().mean(dim=(2, 3)))


kept = {}
net = Net().eval()
net.features.register_forward_hook(lambda module, inputs, output: kept.update(activation=output))
for (image,) in DataLoader(TensorDataset(torch.randn(3, 1, 5, 5)), batch_size=1):
    scores = net(image)
    gradient = torch.autograd.grad(scores[0, scores.argmax()], kept["activation"])[0]
    cam = (gradient.mean(dim=(2, 3), keepdim=True) * kept["activation"]).sum(1).relu()
    print(round(cam.max().item(), 6))
