"""PPO whose minibatches come from a DataLoader that is made for each rollout and passed over twice.
---
group: steps
captured: Policy
train: [2, 2, 2, 2]
eval: [4, 4, 0, 0]
table:
  step: "`train`: one minibatch; `eval`: one action"
  epoch: one pass over the rollout's loader, so two for each rollout
  phase: "`train`; the rollout is `eval`, and belongs to the pass before it"
why: >
  Each pass over a training loader is an epoch. The second rollout comes after the second pass, before anything shows that another epoch
  begins, so it is in epoch 1.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, state):
        return self.fc(state).log_softmax(-1)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for update in range(2):
    states = torch.randn(4, 2)
    with torch.no_grad():
        actions = torch.stack([policy(state).argmax() for state in states])
    loader = DataLoader(TensorDataset(states, actions), batch_size=2, shuffle=True)
    for _ in range(2):
        for state, action in loader:
            loss = nn.functional.nll_loss(policy(state), action)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(update, loss.item())
