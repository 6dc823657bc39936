"""An ordinary differential equation whose gradients come from the adjoint method: the model is called in an `autograd.Function`.
---
group: steps
gradients: false
captured: Field
train: [[3, 3], [3, 3]]
table:
  step: one batch
  microstep: one stage of the solver's forward
  epoch: one pass
why: PyTorch switches gradients off in the forward of an `autograd.Function`; the calls are training calls all the same. Those of the backward repeat them.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STAGES, SIZE = 3, 0.1


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, state):
        return torch.tanh(self.fc(state))


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, state, field, *parameters):
        for _ in range(STAGES):
            state = state + SIZE * field(state)
        ctx.field = field
        ctx.save_for_backward(state)
        return state

    @staticmethod
    def backward(ctx, adjoint):
        (state,) = ctx.saved_tensors
        parameters = tuple(ctx.field.parameters())
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for _ in range(STAGES):
            with torch.enable_grad():
                state = state.detach().requires_grad_()
                slope = ctx.field(state)
                first, *others = torch.autograd.grad(slope, (state, *parameters), SIZE * adjoint)
            adjoint = adjoint + first
            totals = [total + other for total, other in zip(totals, others)]
            state = state - SIZE * slope.detach()
        return (adjoint, None, *totals)


torch.manual_seed(0)
field = Field()
optimizer = torch.optim.SGD(field.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(4, 2)), batch_size=2)
for epoch in range(2):
    for (start,) in loader:
        optimizer.zero_grad()
        end = Adjoint.apply(start.requires_grad_(), field, *field.parameters())
        end.square().mean().backward()
        optimizer.step()
    print(epoch, field.fc.weight.sum().item())
