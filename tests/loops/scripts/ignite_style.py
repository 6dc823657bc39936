"""An engine with events: the loop lives in a library, the update and the evaluation are handlers.
---
group: frameworks
captured: Net
train: [3, 3]
eval: [2, 2]
table:
  step: "`train`: one iteration of the trainer; `eval`: one of the evaluator"
  epoch: one epoch of the trainer
  phase: "`train` and `eval`"
why: The base rule; the engine iterates its loader by `next` and begins it anew for each epoch.
"""

from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Engine:
    def __init__(self, process):
        self.process, self.handlers = process, defaultdict(list)

    def on(self, event):
        return lambda handler: self.handlers[event].append(handler) or handler

    def fire(self, event):
        for handler in self.handlers[event]:
            handler(self)

    def run(self, data, max_epochs=1):
        for self.epoch in range(max_epochs):
            iterator, self.iteration = iter(data), 0
            while True:
                try:
                    self.batch = next(iterator)
                except StopIteration:
                    break
                self.output = self.process(self, self.batch)
                self.iteration += 1
                self.fire("iteration")
            self.fire("epoch")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
train = DataLoader(TensorDataset(torch.randn(6, 3)), batch_size=2)
valid = DataLoader(TensorDataset(torch.randn(4, 3)), batch_size=2)


def update(engine, batch):
    net.train()
    optimizer.zero_grad()
    loss = net(batch[0]).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def evaluate(engine, batch):
    net.eval()
    with torch.no_grad():
        return net(batch[0]).mean().item()


trainer, evaluator = Engine(update), Engine(evaluate)


@trainer.on("epoch")
def validate(engine):
    evaluator.run(valid)
    print(engine.epoch, engine.output, evaluator.output)


trainer.run(train, max_epochs=2)
