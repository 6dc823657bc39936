"""PPO: a rollout under no_grad, then several epochs of shuffled minibatches on it, cut by index.
---
group: steps
captured: ActorCritic
target: body
train: [8]
eval: [8]
table:
  step: "`train`: one minibatch; `eval`: one action of the rollout"
  epoch: all is epoch 0, since there is no loader
  phase: "`train`; the rollout under `no_grad` is `eval`"
why: Without a loader a step ends at the first training call after an optimizer step.
"""

import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 4)
        self.actor = nn.Linear(4, 2)
        self.critic = nn.Linear(4, 1)

    def forward(self, state):
        hidden = self.body(state).tanh()
        return torch.distributions.Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


torch.manual_seed(0)
net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for update in range(2):
    states, actions, logs, rewards = [], [], [], []
    state = torch.zeros(1, 2)
    with torch.no_grad():
        for _ in range(4):
            policy, _ = net(state)
            action = policy.sample()
            states.append(state), actions.append(action), logs.append(policy.log_prob(action)), rewards.append(action.float() - 0.5)
            state = state + torch.randn(1, 2)
    states, actions, logs, rewards = map(torch.cat, (states, actions, logs, rewards))
    for _ in range(2):
        for index in torch.randperm(4).split(2):
            policy, value = net(states[index])
            ratio = (policy.log_prob(actions[index]) - logs[index]).exp()
            loss = -(ratio * rewards[index]).mean() + (value - rewards[index]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(update, loss.item())
