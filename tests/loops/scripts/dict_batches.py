"""Batches that are dictionaries with methods, in the style of tensordict, given to the model as keyword arguments.
---
group: loaders
captured: Tagger
target: classifier
train: [2, 2]
eval: [1, 1]
table:
  step: one batch
  epoch: one pass
  phase: "`train`, and `eval` for the evaluation"
why: The base rule; what a batch is made of does not matter.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader


class Batch(dict):
    def to(self, device):
        return Batch({key: value.to(device) for key, value in self.items()})

    def __getattr__(self, name):
        return self[name]


def collate(items):
    return Batch(input_ids=torch.stack([item["ids"] for item in items]), labels=torch.tensor([item["label"] for item in items]))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.classifier = nn.Linear(4, 2)

    def forward(self, input_ids, labels=None):
        logits = self.classifier(self.embed(input_ids).mean(dim=1))
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


torch.manual_seed(0)
items = [{"ids": torch.randint(10, (5,)), "label": i % 2} for i in range(8)]
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
train = DataLoader(items, batch_size=4, shuffle=True, collate_fn=collate)
test = DataLoader(items[:3], batch_size=4, collate_fn=collate)
for epoch in range(2):
    model.train()
    for batch in train:
        batch = batch.to("cpu")
        output = model(**batch)
        output["loss"].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
    with torch.inference_mode():
        correct = sum((model(**batch)["logits"].argmax(1) == batch.labels).sum().item() for batch in test)
    print(epoch, output["loss"].item(), correct)
