"""Train a small convolutional network on scikit-learn's handwritten digits. Nothing in here knows of probes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset

TEST_IMAGES = 360


class DenseLayer(nn.Module):
    """Adds channels to what it is given, by concatenation, as DenseNet does."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(channels, growth, kernel_size=3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(self.relu(self.norm(x)))], dim=1)


class DigitsNet(nn.Module):
    """A stem, a dense block, a norm and a linear classifier over 8 x 8 images."""

    def __init__(self, growth: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("stem", nn.Conv2d(1, 16, kernel_size=3, padding=1))
        self.features.add_module("block", nn.Sequential(*(DenseLayer(16 + i * growth, growth) for i in range(3))))
        self.features.add_module("norm", nn.BatchNorm2d(16 + 3 * growth))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Linear(4 * (16 + 3 * growth), 10)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)
        features = F.relu(features, inplace=True)  # overwrites what `features.norm` returned
        return self.classifier(self.pool(features).flatten(1))


def loaders(batch_size: int, seed: int) -> tuple[DataLoader, DataLoader]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return (
        DataLoader(TensorDataset(images[train], labels[train]), batch_size=batch_size, shuffle=True),
        DataLoader(TensorDataset(images[test], labels[test]), batch_size=120),
    )


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: Optimizer) -> list[float]:
    model.train()
    losses = []
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / TEST_IMAGES


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", help="where to save weights, losses and the random state at the end")
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    train, test = loaders(args.batch_size, args.seed)
    model = DigitsNet()
    optimizer = SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)
    losses = []
    for epoch in range(args.epochs):
        losses += train_epoch(model, train, optimizer)
        print(f"epoch {epoch}  loss {sum(losses[-len(train) :]) / len(train):.4f}  test accuracy {accuracy(model, test):.3f}")
    if args.checkpoint:
        torch.save({"model": model.state_dict(), "losses": losses, "random_state": torch.get_rng_state()}, args.checkpoint)


if __name__ == "__main__":
    main()
