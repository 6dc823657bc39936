"""Profilers around the training: cProfile in the first epoch, torch's with Python stacks and modules in the second.
---
group: tools
captured: Net
train: [[1, 1, 1], [1, 1, 1]]
table:
  step: one batch
  microstep: always 0
  epoch: one pass
why: A profiler changes nothing that is counted. That of torch reads the frame of `Module.__call__`.
"""

import cProfile
from contextlib import contextmanager

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


@contextmanager
def profiled_by_python():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        yield lambda: None
    finally:
        profiler.disable()


@contextmanager
def profiled_by_torch():
    plan = schedule(wait=0, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=True, with_modules=True, record_shapes=True) as profiler:
        yield profiler.step


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
for epoch, profiled in enumerate((profiled_by_python, profiled_by_torch)):
    with profiled() as step_ends:
        for (x,) in loader:
            with record_function("step"):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                optimizer.step()
            step_ends()
    print(epoch, net.fc.weight.sum().item())
