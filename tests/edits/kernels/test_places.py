"""Parts of a value at lists, ranges and one position for each sample, next to loops over samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.component import EditContext
from probes.errors import EditError
from probes.plan import resolve
from probes.signature import Signature
from probes.testing import check_edit
from tests.edits.made import made
from tests.old_torch import indexes_float8
from tests.runner.in_memory import in_memory

VALUE = torch.arange(3 * 5 * 4, dtype=torch.float32).reshape(3, 5, 4) + 1
DIMS = ("batch", "token", "feature")
MASK = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def zeroed(at: dict[str, Any], given: dict[str, Tensor] | None = None, value: Tensor = VALUE, dims: tuple[str, ...] = DIMS) -> Tensor:
    edit = made("zero", at=at)
    context = EditContext(Signature("float32", tuple(value.shape), dims), None, given or {})
    return edit.begin(context)(value, torch.Generator())[0]


def by_hand(chosen: Any) -> Tensor:
    """The value with zeros where (sample, token, feature) is chosen."""
    result = VALUE.clone()
    for place in torch.cartesian_prod(*map(torch.arange, VALUE.shape)).tolist():
        if chosen(*place):
            result[tuple(place)] = 0
    return result


@pytest.mark.parametrize(
    ("at", "chosen"),
    [
        ({"token": [0, -1]}, lambda sample, token, feature: token in (0, 4)),
        ({"token": {"from": 1, "until": 4, "every": 2}}, lambda sample, token, feature: token in (1, 3)),
        ({"token": {"from": -2}, "feature": 1}, lambda sample, token, feature: token >= 3 and feature == 1),
        ({"token": [1, 2], "feature": {"until": 2}}, lambda sample, token, feature: token in (1, 2) and feature < 2),
        ({"feature": [3], "batch": 0}, lambda sample, token, feature: feature == 3 and sample == 0),
    ],
)
def test_lists_and_ranges_choose_positions(at: dict[str, Any], chosen: Any) -> None:
    assert torch.equal(zeroed(at), by_hand(chosen))


@indexes_float8
@pytest.mark.parametrize("at", [{"token": [0, -1]}, {"token": {"from": -2}, "feature": 1}, {"feature": [3], "batch": 0}])
def test_an_edit_at_lists_and_ranges_passes_the_conformance_kit(at: dict[str, Any]) -> None:
    check_edit(made("zero", at=at), shapes=[(3, 5, 4)], dims=DIMS)


@pytest.mark.parametrize("name", ["last_of mask", {"given": "places"}])
def test_each_sample_has_a_separate_position(name: Any) -> None:
    places = [1, 4, 2]
    given = {"mask": MASK, "places": torch.tensor(places)}
    expected = by_hand(lambda sample, token, feature: token == places[sample])
    assert torch.equal(zeroed({"token": name}, given), expected)
    transposed = zeroed({"token": name}, given, VALUE.transpose(0, 1).contiguous(), ("token", "batch", "feature"))
    assert torch.equal(transposed.transpose(0, 1), expected)
    some = zeroed({"token": name, "feature": {"from": 2}}, given)
    assert torch.equal(some, by_hand(lambda sample, token, feature: token == places[sample] and feature >= 2))


def test_a_vector_is_added_at_the_position_of_each_sample_and_gradients_flow() -> None:
    edit = made("add", from_={"given": "direction"}, scale={"given": "strength"}, at={"token": "last_of mask"})
    given = {"mask": MASK, "strength": torch.tensor(2.0)}
    direction, leaf = torch.tensor([1.0, 2.0, 3.0, 4.0]), VALUE.clone().requires_grad_()
    found = edit.begin(EditContext(Signature("float32", (3, 5, 4), DIMS), direction, given))(leaf, torch.Generator())[0]
    expected = VALUE.clone()
    for sample, place in enumerate([1, 4, 2]):
        expected[sample, place] += 2 * direction
    assert torch.equal(found, expected)
    found.sum().backward()  # type: ignore[no-untyped-call]  # torch's stubs leave it untyped
    assert torch.equal(leaf.grad, torch.ones_like(leaf))
    assert edit.given_names() == ("strength", "mask")


@pytest.mark.parametrize(
    ("at", "given", "reason"),
    [
        ({"token": [0, 5]}, {}, "out of range for an axis of size 5"),
        ({"token": {"given": "p"}}, {"p": torch.tensor([0, 1])}, "2 positions are given for 3 samples"),
        ({"token": {"given": "p"}}, {"p": torch.tensor([0.5])}, "positions are integers"),
        ({"token": "last_of m"}, {"m": MASK * 0}, "the mask of a sample is zero everywhere"),
        ({"token": "last_of m"}, {"m": MASK[0]}, r"needs a mask of \(samples, positions\)"),
        ({"token": [0], "feature": [1]}, {}, "only one axis can have a list"),
        ({"batch": 0, "token": {"given": "p"}}, {"p": torch.tensor([0, 1, 2])}, "needs all samples"),
    ],
)
def test_positions_that_do_not_fit_are_refused_with_a_reason(at: dict[str, Any], given: dict[str, Tensor], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        zeroed(at, given)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Identity()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.block(x)


class Masked(nn.Identity):
    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return x


class WithMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Masked()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x, attention_mask=MASK)


def spec(edit: dict[str, Any], hook: str = "forward") -> dict[str, Any]:
    probe = {"hook": hook, "modules": ["block"], "dims": list(DIMS), "edit": edit}
    if hook == "pre-forward":
        probe["values"] = ["input.x"]
    return {"version": 1, "allow_edits": True, "probes": {"e": probe}}


@pytest.mark.parametrize("hook", ["forward", "pre-forward"])
def test_the_last_place_of_a_mask_that_is_an_input_of_the_call_is_edited(hook: str) -> None:
    found = probes.look(WithMask(), spec({"kind": "zero", "at": {"token": "last_of input.attention_mask"}}, hook), VALUE).output
    assert torch.equal(found, by_hand(lambda sample, token, feature: token == [1, 4, 2][sample]))


def test_a_permutation_that_the_program_gives_mixes_the_samples_and_is_digested() -> None:
    edit = {"kind": "mixup", "lam": 0.25, "permutation": {"given": "partners"}}
    model = Net()
    with in_memory(model, spec(edit), {"partners": [1, 2, 0]}) as run, run.epoch(0):
        with run.step():
            found = model(VALUE, MASK)
        run.set(partners=torch.tensor([2, 1, 0]))
        with run.step():
            other = model(VALUE, MASK)
    assert torch.equal(found, 0.25 * VALUE + 0.75 * VALUE[[1, 2, 0]])
    assert torch.equal(other, 0.25 * VALUE + 0.75 * VALUE[[2, 1, 0]])
    assert [row["name"] for row in run.closing["given"]["set"]] == ["partners"]
    start = run.closing["given"]["start"]["partners"]
    assert start["dtype"] == "int64"
    (binding,) = resolve(spec(edit), Net(), {"partners": [1, 2, 0]}).bindings
    assert binding.as_dict()["given_blake3"] == {"partners": start["blake3"]}


@pytest.mark.parametrize("partners", [[0, 0, 1], [0, 1], [0.0, 1.0, 2.0]])
def test_a_value_that_is_not_a_permutation_of_the_batch_stops_training(partners: list[float]) -> None:
    model = Net()
    edit = {"kind": "mixup", "lam": 0.25, "permutation": {"given": "partners"}}
    with pytest.raises(EditError, match="`partners` is not a permutation of the 3 samples of the batch"):
        probes_run(model, edit, partners)


def probes_run(model: nn.Module, edit: dict[str, Any], partners: list[float]) -> None:
    with in_memory(model, spec(edit), {"partners": partners}) as run, run.epoch(0), run.step():
        model(VALUE, MASK)


def test_a_tensor_that_the_program_does_not_give_is_refused_before_the_run() -> None:
    with pytest.raises(probes.ProbesError, match="the program does not give `mask`"):
        resolve(spec({"kind": "zero", "at": {"token": "last_of mask"}}), Net(), {"masks": 1.0})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.uint16, torch.int32, torch.uint64])
def test_positions_of_every_integer_dtype_are_positions(dtype: torch.dtype) -> None:
    positions = torch.tensor([1, 2, 1])
    wanted = zeroed({"token": {"given": "p"}}, {"p": positions})
    assert torch.equal(zeroed({"token": {"given": "p"}}, {"p": positions.to(dtype)}), wanted)
