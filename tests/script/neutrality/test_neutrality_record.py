import json
from pathlib import Path

import torch
from torch import nn

from probes.script.neutrality.neutrality_record import NeutralityRecord


def train(steps: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(3, 2)).square().sum().backward()
        optimizer.step()
    return net


def events(path: Path, seed: int) -> list[dict[str, object]]:
    torch.manual_seed(seed)
    record = NeutralityRecord(path)
    record.start()
    train(2)
    record.close(0)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_backward_and_step_is_written_down_and_the_end(tmp_path: Path) -> None:
    found = events(tmp_path / "a", 0)
    assert [event["event"] for event in found] == ["backward", "step", "backward", "step", "end"]


def test_two_runs_with_one_seed_are_the_same_and_with_another_are_not(tmp_path: Path) -> None:
    assert events(tmp_path / "a", 0) == events(tmp_path / "b", 0)
    assert events(tmp_path / "a", 0) != events(tmp_path / "b", 1)


def test_the_topmost_modules_are_compared_even_after_the_program_deleted_them(tmp_path: Path) -> None:
    (model,) = events(tmp_path / "a", 0)[-1]["models"]  # type: ignore[misc]  # a list, as JSON gives it
    assert model["class"] == "Sequential"
    assert sorted(model["state"]) == [
        "0.bias",
        "0.weight",
        "1.bias",
        "1.num_batches_tracked",
        "1.running_mean",
        "1.running_var",
        "1.weight",
    ]
    assert model["hooks"] == 0


def test_torch_is_not_changed(tmp_path: Path) -> None:
    before = torch.autograd.backward
    events(tmp_path / "a", 0)
    assert torch.autograd.backward is before


def test_a_program_that_replaces_backward_keeps_its_replacement(tmp_path: Path) -> None:
    record = NeutralityRecord(tmp_path / "record.jsonl")
    before = torch.autograd.backward

    def own(*args: object, **kwargs: object) -> None:
        """What the program puts in."""

    record.start()
    torch.autograd.backward = own  # type: ignore[assignment]  # as a program would
    try:
        record.close(0)
        assert torch.autograd.backward is own
    finally:
        torch.autograd.backward = before
