"""Projections that are one module in one run and several in the other, against the sums that one makes by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import probes
from probes.errors import UsageError
from probes.proof.comparison.difference import Difference
from probes.proof.comparison.mapping import parse_mappings

HEADS, WIDTH, KEYS = 4, 8, 4  # keys and values have fewer features than queries, as with grouped queries


class Split(nn.Module):
    """Three projections."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, out, bias) for out in (WIDTH, KEYS, KEYS))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.q(x), self.k(x), self.v(x)), -1)


class Fused(nn.Module):
    """One projection with the rows of the three, those of each head together if the heads alternate."""

    def __init__(self, split: Split, groups: int) -> None:
        super().__init__()
        parts = (split.q, split.k, split.v)
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * KEYS, split.q.bias is not None)
        rows = [torch.arange(WIDTH), WIDTH + torch.arange(KEYS), WIDTH + KEYS + torch.arange(KEYS)]
        order = torch.cat([row.chunk(groups)[group] for group in range(groups) for row in rows])
        with torch.no_grad():
            self.qkv.weight.copy_(torch.cat([part.weight for part in parts])[order])
            if split.q.bias is not None:
                self.qkv.bias.copy_(torch.cat([part.bias for part in parts])[order])
        self.back = torch.argsort(order)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.qkv(x)[..., self.back]
        return found


class Model(nn.Module):
    """Two layers of attention, as far as their projections go."""

    def __init__(self, groups: int, *, fused: bool, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [Split(bias).double() for _ in range(2)]
        self.h = nn.ModuleList([Fused(one, groups).double() if fused else one for one in layers])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.h:
            x = layer(x)[..., :WIDTH]
        return x


SPEC: dict[str, Any] = {
    "version": 1,
    "probes": {
        "acts": {"modules": ["h.*.*"], "values": ["input", "output", "grad_output", "grad_input"]},
        "weights": {"hook": "tensor", "tensors": ["**"], "values": ["data", "update", "state.exp_avg"]},
        "grads": {"hook": "tensor", "tensors": ["**"], "stage": "final"},
        "norms": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "transforms": [{"kind": "norm"}]},
        "stats": {"modules": ["h.*.*"], "values": ["output"], "transforms": [{"kind": "abs"}, {"kind": "stats"}]},
    },
}


def trained(out: Path, *, fused: bool, groups: int = 1, bias: bool = True) -> Path:
    """Two steps of Adam."""
    model = Model(groups, fused=fused, bias=bias)
    optimizer = torch.optim.Adam(model.parameters())
    torch.manual_seed(1)
    with probes.attach(model, SPEC, out=out) as run:
        for x in run.steps([torch.randn(2, 3, WIDTH, dtype=torch.float64) for _ in range(2)]):
            optimizer.zero_grad()
            model(x.requires_grad_()).square().mean().backward()
            optimizer.step()
    return out


def compared(a: Path, b: Path, *mapping: str) -> Difference:
    return probes.diff(a, b, mapping=mapping, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("groups", "bias"), [(1, True), (HEADS, False)])
def test_one_projection_is_compared_with_the_three_that_it_is_made_of(tmp_path: Path, groups: int, bias: bool) -> None:
    one, three = trained(tmp_path / "one", fused=True, groups=groups, bias=bias), trained(tmp_path / "three", fused=False, bias=bias)
    more = f"[groups={groups}]" if groups > 1 else ""
    found = compared(one, three, f"h.*.qkv=h.*.q+h.*.k+h.*.v{more}")
    assert found.verdict == "same", [str(series) for series in found.series if series.different or series.missing or series.incomparable]

    assert compared(three, one, f"h.*.q+h.*.k+h.*.v=h.*.qkv{more}").verdict == "same", "and the other way round"
    assert compared(one, three, f"h.*.qkv=h.*.k+h.*.q+h.*.v{more}").verdict == "different", "the order matters"
    if groups > 1:
        assert compared(one, three, "h.*.qkv=h.*.q+h.*.k+h.*.v").verdict == "different"
        return
    file = tmp_path / "names.txt"
    file.write_text("# layers\nh.0.qkv=h.0.q+h.0.k+h.0.v\n\nh.1.qkv=h.1.q+h.1.k+h.1.v  # the last\n")
    assert compared(one, three, f"@{file}").verdict == "same"
    file.write_text("# layers\nh.0.qkv = h.0.q + h.0.kk + h.0.v\n")
    for text, message in {
        f"@{file}": r'names.txt":2:19: `h.0.kk` is not a module of the second run; did you mean `h.0.k`\?',
        "h.*.qvk=h.*.q+h.*.k+h.*.v": r"character 1: `h.\*.qvk` is not a module of the first run; did you mean",
        "h.0.qkv=h.0.q+h.0.k+h.0.v[groups=3]": "character 9: .* have the shapes .*, not joined along axis [02] in 3 groups",
        "h.0.qkv:output=h.0.q+h.0.k+h.0.v:output[dim=3]": "character 41: .* has 3 axes, and no axis 3",
    }.items():
        with pytest.raises(UsageError, match=message):
            compared(one, three, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a+b", "character 4: `=` and the name in the other run are missing"),
        ("a+b=c+d", "character 5: both sides have several modules"),
        ("a=b[dim=0]", "character 4: no side has several modules"),
        ("a=b++c", "character 5: a module path is missing"),
        ("a=b+c..d", "character 5: `c..d` is not a module path"),
        ("a=b+c[dims=0]", "character 7: `dims` is not an option of a fusion; did you mean `dim`?"),
        ("a=b+c[dim=0,groups=x]", "character 13: `groups` takes a number, such as `groups=12`, not `x`"),
        ("a=b+c[groups=0]", "character 7: `groups` is at least 1"),
        ("a=b+c[dim=0,dim=1]", "character 13: `dim` is given twice"),
        ("a.*=b+c.*", "character 5: `b` has another number of `*` than `a.*`"),
        ("a:output=b+c:input", "character 10: the leaf `input` differs from `output`"),
        ("@nowhere", "the file cannot be read"),
    ],
)
def test_a_fusion_that_cannot_be_read_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_mappings([text])
    assert message in str(refused.value)
