"""A model that serves requests from two threads at once after its training.
---
group: parts
captured: Net
target: head
train: [2]
eval: [4]
table:
  step: "`train`: one batch; `eval`: one request"
  microstep: always 0
  epoch: one pass, and all that follows it
  phase: "`train`, then `eval`"
why: Each thread has a current call of its own, so requests that overlap are a step each.
"""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
turns = [threading.Event() for _ in range(3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.head = nn.Linear(3, 1)
        self.between = lambda: None

    def forward(self, x):
        hidden = self.fc(x)
        self.between()
        return self.head(hidden)


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
net.eval()
answers = {}


def between():
    """The first request waits within its forward until the second one is within its own, and goes on after it."""
    if threading.current_thread().name == "first":
        turns[0].set()
        turns[1].wait(10)
    else:
        turns[1].set()


net.between = between


def serve(x):
    name = threading.current_thread().name
    if name == "second":
        turns[0].wait(10)
    with torch.no_grad():
        answers[name] = net(x).item()


for request in range(2):
    threads = [
        threading.Thread(target=serve, args=(torch.full((1, 3), float(request + i)),), name=n) for i, n in enumerate(("first", "second"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(request, sorted(answers.items()))
    for turn in turns:
        turn.clear()
