"""Q-learning on stored transitions: the target network is called first for each batch.
---
group: models
captured: QNet[1]
train: [3, 3]
table:
  step: one batch
  epoch: one pass over the replay
  phase: "`train`; the target network is not captured"
why: The model is the one whose parameters an optimizer steps, never just the first that is called.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, state):
        return self.fc(state)


target, policy = QNet(), QNet()
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
replay = DataLoader(TensorDataset(torch.randn(6, 2), torch.randn(6), torch.randn(6, 2)), batch_size=2)
for epoch in range(2):
    for state, reward, following in replay:
        with torch.no_grad():
            goal = reward + 0.9 * target(following).amax(1)
        loss = (policy(state).amax(1) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    target.load_state_dict(policy.state_dict())
    print(epoch, loss.item())
