"""REINFORCE: the policy acts with gradients through an episode, and learns once at its end.
---
group: steps
captured: Policy
train: [[3, 4, 5]]
table:
  step: one episode
  microstep: each action
  epoch: all is epoch 0
why: Without a loader a step ends at the first training call after an optimizer step.
"""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)

    def forward(self, state):
        return Categorical(logits=self.fc(state))


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
for episode in range(3):
    state, logs, rewards = torch.zeros(2), [], []
    for _ in range(3 + episode):
        choice = policy(state)
        action = choice.sample()
        logs.append(choice.log_prob(action))
        rewards.append(float(action))
        state = state + torch.randn(2)
    loss = -(torch.stack(logs) * torch.tensor(rewards).cumsum(0).flip(0)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(episode, loss.item())
