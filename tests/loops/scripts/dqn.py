"""DQN: the policy acts under no_grad, a target network gives the values to learn, a replay buffer gives the batches.
---
group: models
captured: QNet
train: [5]
eval: [8]
table:
  step: "`train`: one update; `eval`: one action"
  epoch: all is epoch 0, since there is no loader
  phase: "`train`; acting under `no_grad` is `eval`"
why: Without a loader a step ends at the first training call after an optimizer step. The target network is another model.
"""

import copy
import random
from collections import deque

import torch
from torch import nn


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, state):
        return self.out(self.fc(state).relu())


random.seed(0)
torch.manual_seed(0)
policy = QNet()
target = copy.deepcopy(policy)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
memory = deque(maxlen=100)
state = torch.zeros(2)
for step in range(8):
    with torch.no_grad():
        action = policy(state).argmax().item() if random.random() > -1 else 0
    following = state + torch.randn(2) * 0.1
    memory.append((state, action, following.sum(), following))
    state = following
    if len(memory) >= 4:
        batch = random.sample(list(memory), 2)
        states, following = torch.stack([row[0] for row in batch]), torch.stack([row[3] for row in batch])
        actions, rewards = torch.tensor([row[1] for row in batch]), torch.stack([row[2] for row in batch])
        with torch.no_grad():
            goal = rewards + 0.9 * target(following).max(dim=1).values
        value = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
    if step % 4 == 3:
        target.load_state_dict(policy.state_dict())
