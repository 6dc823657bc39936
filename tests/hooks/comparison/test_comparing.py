"""Each comparison with another step, series or run, next to the same numbers computed by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import RunError
from tests.runner.in_memory import in_memory

BATCHES = [torch.randn(6, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.third(torch.relu(self.second(torch.relu(hidden)) + hidden))


def spec(probe: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"version": 1, "probes": {**others, "p": probe}}


def against(how: dict[str, Any], kind: str, **keys: Any) -> dict[str, Any]:
    return {"against": how, "transforms": [{"kind": kind, **keys}]}


WEIGHTS = {"hook": "tensor", "tensors": ["*.weight"], "values": ["data"]}
OUTPUTS = {"hook": "forward", "modules": ["first", "second"]}


def trained(model: nn.Module, spec: Any, raising: int = -1) -> tuple[Any, list[dict[str, Tensor]]]:
    """A run of five steps, and what the layers returned and weighed in each; one of them may raise."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[dict[str, Tensor]] = []
    with in_memory(model, spec) as run, run.epoch(0):
        for index, batch in enumerate(BATCHES):
            try:
                with run.step():
                    now = {f"{name}.weight": module.weight.detach().clone() for name, module in model.named_children()}
                    handles = [
                        module.register_forward_hook(lambda _, __, out, name=name, now=now: now.update({name: out.detach().clone()}))
                        for name, module in model.named_children()
                    ]
                    loss = model(batch).square().mean()
                    for handle in handles:
                        handle.remove()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    if index == raising:
                        raise KeyError
                    seen.append(now)
            except KeyError:
                continue
    return run, seen


def relative(value: Tensor, other: Tensor) -> Tensor:
    return (value - other).norm() / other.norm()


def test_a_weight_is_compared_with_the_first_and_with_the_previous_step() -> None:
    for how, other in (("first", lambda seen, index: seen[0]), ("previous", lambda seen, index: seen[index - 1])):
        run, seen = trained(Net(), spec({**WEIGHTS, **against({"step": how}, "relative_error")}))
        for name in ("first.weight", "third.weight"):
            series = run.found["p", name]
            expected = [relative(seen[index][name], other(seen, index)[name]) for index in range(1, 5)]
            assert series.steps.tolist() == [1, 2, 3, 4]
            torch.testing.assert_close(series.torch(), torch.stack(expected), rtol=1e-5, atol=0)
        assert run.account("p", "first.weight", "data")["skipped"] == {"no second tensor": 1}


def test_a_step_that_raised_is_not_a_previous_step() -> None:
    run, seen = trained(Net(), spec({**OUTPUTS, **against({"step": "previous"}, "cosine")}), raising=2)
    series = run.found["p", "first"]
    pairs = [(seen[index]["first"], seen[index - 1]["first"]) for index in range(1, 4)]
    expected = [torch.cosine_similarity(one.flatten(), other.flatten(), dim=0) for one, other in pairs]
    torch.testing.assert_close(series.torch(), torch.stack(expected), rtol=1e-5, atol=1e-6)


def test_a_schedule_chooses_which_step_is_the_previous_one() -> None:
    run, seen = trained(Net(), spec({**OUTPUTS, **against({"step": "previous"}, "difference"), "when": {"steps": {"every": 2}}}))
    assert run.found["p", "second"].steps.tolist() == [2, 4]
    assert torch.equal(run.found["p", "second"].torch()[1], seen[4]["second"] - seen[2]["second"])


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_a_series_is_compared_with_one_that_comes_earlier_or_later_in_the_call(order: tuple[str, str]) -> None:
    own, other = order
    wanted = spec(
        {"hook": "forward", "modules": [own], **against({"series": "q"}, "difference")},
        q={"hook": "forward", "modules": [other], "transforms": [{"kind": "norm"}]},
    )
    run, seen = trained(Net(), wanted)
    assert torch.equal(run.found["p", own].torch(), torch.stack([now[own] - now[other] for now in seen]))
    assert len(run.found["q", other]) == 5


def test_a_weight_is_compared_with_its_gradient_which_comes_later_in_the_step() -> None:
    wanted = spec({**WEIGHTS, **against({"series": "g"}, "cosine")}, g={"hook": "tensor", "tensors": ["*.weight"], "stage": "final"})
    run, _ = trained(Net(), wanted)
    weights, gradients = Net().state_dict()["second.weight"], run.found["g", "second.weight"].torch()
    expected = torch.cosine_similarity(weights.flatten(), gradients[0].flatten(), dim=0)
    torch.testing.assert_close(run.found["p", "second.weight"].torch()[0], expected, rtol=1e-5, atol=1e-7)


def cka_by_hand(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """The mean over batches of each estimate, as in Nguyen et al. (2021), with loops over samples."""

    def hsic(k: list[list[float]], m: list[list[float]]) -> float:
        n = len(k)
        trace = sum(k[i][j] * m[j][i] for i in range(n) for j in range(n))
        ones = sum(map(sum, k)) * sum(map(sum, m)) / ((n - 1) * (n - 2))
        both = sum(k[i][j] * m[j][other] for i in range(n) for j in range(n) for other in range(n)) * 2 / (n - 2)
        return (trace + ones - both) / (n * (n - 3))

    def gram(x: Tensor) -> list[list[float]]:
        rows = x.double()
        return [[0.0 if i == j else float(rows[i] @ rows[j]) for j in range(len(rows))] for i in range(len(rows))]

    groups = (pairs, [(one, one) for one, _ in pairs], [(other, other) for _, other in pairs])
    sums = [sum(hsic(gram(one), gram(other)) for one, other in chosen) for chosen in groups]
    return sums[0] / (sums[1] * sums[2]) ** 0.5


def test_cka_measures_how_similar_each_two_layers_are_over_an_epoch() -> None:
    run, seen = trained(Net(), spec({"hook": "forward", "modules": ["*"], **against({"series": "p", "target": "*"}, "cka")}))
    assert len(run.found.series) == 6
    for own, other in (("first", "third"), ("third", "first"), ("first", "second")):
        numbers = run.found["p", own, f"output.vs.{other}"].torch()[0]
        assert float(numbers[0]) == pytest.approx(cka_by_hand([(now[own], now[other]) for now in seen]), rel=1e-9)
        assert numbers[-1] == 5
    assert run.account("p", "first", "output.vs.third")["written"] == 1


def test_a_run_is_compared_with_an_earlier_one(tmp_path: Path) -> None:
    """The question where a port parts from its reference: one weight differs."""
    with probes.attach(Net(), spec(OUTPUTS), out=tmp_path / "reference") as run:
        for batch in run.steps(BATCHES):
            run_model = run.engine.plan.trees[""].model
            run_model(batch)
    model = Net()
    with torch.no_grad():
        model.second.bias.add_(0.5)
    with in_memory(model, spec({**OUTPUTS, **against({"run": str(tmp_path / "reference")}, "relative_error")})) as run, run.epoch(0):
        for batch in run.steps([*BATCHES, BATCHES[0]]):
            model(batch)
    assert run.found["p", "first"].torch().tolist() == [0] * 5
    assert (run.found["p", "second"].torch() > 0.1).all()
    assert run.account("p", "first", "output")["skipped"] == {"no second tensor": 1}


@pytest.mark.parametrize(("order", "compared"), [("abcdefgh", [0, 1]), ("abdcefgh", [1]), ("hgfedcba", []), ("", [0, 1])])
def test_a_step_with_other_samples_than_in_the_other_run_is_not_compared(
    order: str, compared: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two batches of four samples, as from loaders that are shuffled differently; a run without ids is compared by the clock alone."""
    model, rows = Net(), dict(zip("abcdefgh", torch.randn(8, 5), strict=True))

    def batches(order: str) -> list[list[str]]:
        return [list(order[:4]), list(order[4:])]

    with probes.attach(model, spec(OUTPUTS), out=tmp_path / "reference") as run:
        for ids in run.steps(batches("abcdefgh"), ids=lambda ids: ids):
            model(torch.stack([rows[one] for one in ids]))
    probe = {**OUTPUTS, "expect": {"fires": "some"}, **against({"run": str(tmp_path / "reference")}, "relative_error")}
    with suppress(RunError), in_memory(model, spec(probe)) as run, run.epoch(0):
        for ids in run.steps(batches(order or "abcdefgh"), ids=(lambda ids: ids) if order else None):
            model(torch.stack([rows[one] for one in ids]))
    assert [step for series in run.found.series if series.key.target == "first" for step in series.steps.tolist()] == compared
    assert not any(series.torch().any() for series in run.found.series)
    said = capsys.readouterr().err
    assert ("the step has other samples than in the other run" in said) is (len(compared) < 2)
    assert ("at row 2 the sample id is 'd' here and 'c' there" in said) is (order == "abdcefgh")


def test_the_samples_of_accumulated_batches_are_compared_batch_by_batch(tmp_path: Path) -> None:
    model = Net()
    samples = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]
    with probes.attach(model, spec(OUTPUTS), out=tmp_path / "reference") as run:
        for ids in run.steps(samples, accumulate=2, ids=lambda ids: ids):
            model(torch.ones(4, 5) * ids[0])
    probe = {**OUTPUTS, **against({"run": str(tmp_path / "reference")}, "relative_error")}
    with in_memory(model, spec(probe)) as run, run.epoch(0):
        for ids in run.steps(samples, accumulate=2, ids=lambda ids: ids):
            model(torch.ones(4, 5) * ids[0])
    assert run.found["p", "first"].torch().tolist() == [0] * 4


def test_conditions_compare_the_result_of_a_comparison() -> None:
    moved = {**OUTPUTS, **against({"step": "previous"}, "difference")}
    run, _ = trained(Net(), spec({**moved, "where": {"of": {"kind": "norm"}, "above": 0.0}}))
    norms = run.found["p", "second"].torch().flatten(1).norm(dim=1)
    bound = float(norms.sort().values[1:3].mean())
    run, _ = trained(Net(), spec({**moved, "where": {"of": {"kind": "norm"}, "above": bound}}))
    assert run.found["p", "second"].steps.tolist() == [index + 1 for index, norm in enumerate(norms) if norm > bound]


def test_tensors_of_other_shapes_are_skipped_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    probe = {"hook": "forward", "modules": ["first"], "expect": {"fires": "some"}, **against({"step": "previous"}, "cosine")}
    model = Net()
    with in_memory(model, spec(probe)) as run, run.epoch(0):
        for size in (3, 4, 4):
            with run.step():
                model(torch.randn(size, 5))
    assert run.found["p", "first"].steps.tolist() == [2]
    assert "the value has shape (4, 8), and the tensor that it is compared with (3, 8)" in capsys.readouterr().err


class Both(nn.Module):
    """Two values of one call, each of its own dtype."""

    def __init__(self, one: Tensor, other: Tensor) -> None:
        super().__init__()
        self.p, self.q, self.values = nn.Identity(), nn.Identity(), (one, other)

    def forward(self, x: Tensor) -> Tensor:
        self.q(self.values[1])
        self.p(self.values[0])
        return x


def compared(one: Tensor, other: Tensor, kind: str) -> Any:
    probe = {"hook": "forward", "modules": ["p"], "expect": {"fires": "some"}, **against({"series": "q"}, kind)}
    model = Both(one, other)
    with in_memory(model, spec(probe, q={"hook": "forward", "modules": ["q"]})) as run, run.epoch(0), run.step():
        model(torch.zeros(1))
    return run


NEAR = torch.tensor([1.0, 1.0 + 2.0**-40], dtype=torch.float64)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.ones(2), NEAR),
        (NEAR, torch.ones(2)),
        (torch.ones(2, dtype=torch.bfloat16), torch.tensor([1.0, 1.0 + 2.0**-20])),
        (torch.ones(2, dtype=torch.float16), torch.tensor([1.0, 1.0078125], dtype=torch.bfloat16)),
    ],
)
def test_floats_of_two_dtypes_are_compared_in_the_dtype_that_holds_both(one: Tensor, other: Tensor) -> None:
    run = compared(one, other, "difference")
    assert torch.equal(run.found["p", "p"].torch()[0].double(), one.double() - other.double())
    error = compared(one, other, "relative_error").found["p", "p"].torch()[0]
    torch.testing.assert_close(error.double(), relative(one.double(), other.double()), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["difference", "cosine", "relative_error"])
@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([1 + 2j, 1]),
        torch.tensor([1, 2**60 + 1]),
        torch.tensor([True, False]),
    ],
    ids=["complex", "integer", "bool"],
)
def test_a_value_is_never_compared_with_another_kind_of_number(kind: str, other: Tensor) -> None:
    with pytest.raises(RunError, match=f"the value is `float32`, and the tensor that it is compared with `{str(other.dtype)[6:]}`"):
        compared(torch.ones(2), other, kind)
