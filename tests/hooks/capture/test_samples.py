"""The largest values of each unit with their samples, and sums by label, next to loops over samples."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from probes.errors import RunError
from probes.transforms.kernels.samples import largest, merge_largest, sums_by_label, with_samples
from tests.runner.in_memory import in_memory

GENERATOR = torch.Generator().manual_seed(3)
IMAGES = torch.randn(23, 4, generator=GENERATOR)
LABELS = torch.randint(0, 3, (23,), generator=GENERATOR)
IDS = [1000 + 7 * index for index in range(23)]
BATCHES = [list(range(start, min(start + 5, 23))) for start in range(0, 23, 5)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.units = nn.Linear(4, 6)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.units(x)


class WithLabels(nn.Module):
    """A model whose probed module gets the labels, too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.net(x, labels=labels)


def spec(module: str, **keys: Any) -> dict[str, Any]:
    transforms = [{"kind": "accumulate", **keys}]
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": [module], "transforms": transforms}}}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_largest_values_of_each_unit_are_kept_with_the_ids_of_their_samples(accumulate: int) -> None:
    model = Net()
    with in_memory(model, spec("units", what="topk", size=4)) as run, run.epoch(0):
        for batch in run.steps(BATCHES, accumulate=accumulate, ids=lambda batch: [IDS[index] for index in batch]):
            model(IMAGES[batch])
    found = run.found["p", "units"].torch()[0]
    values = model(IMAGES).detach().double()
    order = values.sort(dim=0, descending=True).indices[:4]
    torch.testing.assert_close(found[0], values.gather(0, order))
    assert torch.equal(found[1].long(), torch.tensor(IDS)[order])
    assert torch.equal(found[2].long(), order // 5 // accumulate)
    assert torch.equal(found[3].long(), order - (order // 5 // accumulate) * 5 * accumulate)
    assert run.found["p", "units"].dims == ("stat", "top", "dim_0")


def test_without_ids_the_step_and_the_row_name_the_sample_and_what_is_missing_has_row_minus_one() -> None:
    model = Net()
    with in_memory(model, spec("units", what="topk", size=9)) as run, run.epoch(0):
        for batch in run.steps(BATCHES[:1]):
            model(IMAGES[batch])
    found = run.found["p", "units"].torch()[0]
    assert found[1].isnan().all()
    assert (found[3, 5:] == -1).all()
    assert (found[0, 5:] == -torch.inf).all()


def sums_by_hand(values: Tensor) -> list[list[float]]:
    return [[sum(float(values[row, unit]) for row in range(23) if LABELS[row] == label) for unit in range(6)] for label in range(3)]


@pytest.mark.parametrize("when", ["before the call", "after the call"])
def test_sums_by_a_label_that_the_program_logs_are_those_of_a_loop_over_samples(when: str) -> None:
    model = Net()
    with in_memory(model, spec("units", what="sums", by="loop.labels", labels=3)) as run, run.epoch(0):
        for batch in run.steps(BATCHES, accumulate=2):
            if when == "before the call":
                run.log(labels=LABELS[batch])
            model(IMAGES[batch])
            if when == "after the call":
                run.log(labels=LABELS[batch])
    found = run.found["p", "units"].torch()[0]
    torch.testing.assert_close(
        found[2], torch.tensor(sums_by_hand(model(IMAGES).detach().double()), dtype=torch.float64), rtol=0, atol=1e-5
    )
    assert found[0, :, 0].tolist() == torch.bincount(LABELS).tolist()
    assert found[1].sum() == 0


def test_sums_by_a_label_that_is_an_input_of_the_module_need_no_log() -> None:
    model = WithLabels()
    with in_memory(model, spec("net", what="sums", by="input.labels", labels=2)) as run, run.epoch(0):
        for batch in run.steps(BATCHES):
            model(IMAGES[batch], LABELS[batch])
    found = run.found["p", "net"].torch()[0]
    expected = torch.tensor(sums_by_hand(model.net(IMAGES).detach().double())[:2], dtype=torch.float64)
    torch.testing.assert_close(found[2], expected, rtol=0, atol=1e-5)  # what has label 2 is left out


def test_a_step_without_labels_is_skipped_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    model = Net()
    probe = spec("units", what="sums", by="loop.labels", labels=3)
    probe["probes"]["p"]["expect"] = {"fires": "some"}
    with in_memory(model, probe) as run, run.epoch(0):
        for batch in run.steps(BATCHES):
            model(IMAGES[batch])
            if batch[0]:
                run.log(labels=LABELS[batch])
    assert run.found["p", "units"].torch()[0, 0, :, 0].sum() == 18
    assert "the program logged no `loop.labels` in the step: `run.log(labels=...)`" in capsys.readouterr().err


TOKENS = torch.randint(0, 5, (12, 3), generator=GENERATOR)
JOINED = {"kind": "einops", "pattern": "batch token unit -> (batch token) unit"}


class Tagger(nn.Module):
    """A model whose labels are those of tokens, which its head gets, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.net = Net()

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return self.net(self.embed(tokens), labels=labels)


def of_tokens(by: str) -> dict[str, Any]:
    transforms = [JOINED, {"kind": "accumulate", "what": "sums", "by": by, "labels": 5}]
    return {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["net"], "transforms": transforms}}}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("by", ["loop.labels", "input.labels"])
def test_labels_of_tokens_make_each_token_a_sample(by: str, accumulate: int) -> None:
    model = Tagger()
    ignored = TOKENS.where(TOKENS != 4, -100)
    with in_memory(model, of_tokens(by)) as run, run.epoch(0):
        for rows in run.steps(torch.arange(12).split(3), accumulate=accumulate):
            model(TOKENS[rows], ignored[rows])
            run.log(labels=ignored[rows])
    found = run.found["p", "net"].torch()[0]
    values = model(TOKENS, TOKENS).detach().double()
    for label in range(4):
        torch.testing.assert_close(found[2, label], values[label == TOKENS].sum(dim=0), rtol=0, atol=1e-5)
        assert found[0, label].unique().tolist() == [int((label == TOKENS).sum())]
    assert found[0, 4].eq(0).all(), "-100 is left out"


def test_more_labels_than_samples_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    model = Tagger()
    probe = of_tokens("loop.labels")
    probe["probes"]["p"] |= {"transforms": probe["probes"]["p"]["transforms"][1:], "expect": {"fires": "some"}}

    def trained() -> None:
        with in_memory(model, probe) as run, run.epoch(0):
            for rows in run.steps(torch.arange(12).split(3)):
                model(TOKENS[rows], TOKENS[rows])
                run.log(labels=TOKENS[rows])

    with pytest.raises(RunError, match="captured nothing"):
        trained()
    said = capsys.readouterr().err
    assert "`loop.labels` has 9 labels in the step, and the value 3 samples" in said
    assert "(batch token)" in said


def test_the_largest_tokens_are_counted_over_the_tokens_of_all_microsteps() -> None:
    model = Tagger()
    transforms = [JOINED, {"kind": "accumulate", "what": "topk", "size": 4}]
    probe = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["net"], "transforms": transforms}}}
    with in_memory(model, probe) as run, run.epoch(0):
        for rows in run.steps(torch.arange(12).split(3), accumulate=2):
            model(TOKENS[rows], TOKENS[rows])
    found = run.found["p", "net"].torch()[0]
    values = model(TOKENS, TOKENS).detach().double().flatten(0, 1)
    step, row = found[2].long(), found[3].long()
    torch.testing.assert_close(found[0], values.gather(0, step * 18 + row))


def test_ids_of_other_rows_are_not_used() -> None:
    model = Tagger()
    transforms = [{"kind": "select", "dim": 0, "indices": [0, 1]}, {"kind": "accumulate", "what": "topk", "size": 2}]
    probe = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["net"], "transforms": transforms}}}
    with in_memory(model, probe) as run, run.epoch(0):
        for rows in run.steps(torch.arange(12).split(3), ids=lambda rows: rows.tolist()):
            model(TOKENS[rows], TOKENS[rows])
    assert run.found["p", "net"].torch()[0][1].isnan().all()


def test_a_sample_whose_value_is_negative_infinity_comes_before_what_is_missing() -> None:
    first, second = (with_samples(largest(rows, 3), step, 0, ()) for step, rows in enumerate((torch.tensor([5.0]), torch.full((2,), -inf))))
    found = merge_largest(first, second)
    assert found[0].tolist() == [5.0, -inf, -inf]
    assert found[2:].tolist() == [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int16])
def test_labels_of_every_integer_dtype_are_taken(dtype: torch.dtype) -> None:
    rows, labels = torch.arange(3.0), torch.tensor([1, 0, 1])
    assert torch.equal(sums_by_label(rows, labels.to(dtype), 2), sums_by_label(rows, labels, 2))
