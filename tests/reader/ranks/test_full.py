"""Distributed tensors that the reader puts together, against torch's own way of cutting them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import probes
from probes.errors import UsageError
from probes.reader.ranks.full import put_together
from probes.reader.ranks.merged_numbers import MERGES
from tests.transforms.made import applied, made
from tests.warm import programs

cutting = pytest.importorskip("torch.distributed.tensor._utils", reason="this PyTorch is built without distributed")
placed = pytest.importorskip("torch.distributed.tensor.placement_types")

cuts = pytest.mark.skipif(
    not hasattr(cutting, "_compute_local_shape_and_global_offset"), reason="torch before 2.7 has no function that cuts without processes"
)
SHAPES = [(8, 3), (5, 4), (1, 7), (7, 2)]


def cut(whole: np.ndarray[Any, Any], mesh: tuple[int, ...], placements: list[Any]) -> dict[tuple[int, ...], np.ndarray[Any, Any]]:
    """What torch gives each rank of a mesh."""
    found = {}
    for at in product(*map(range, mesh)):
        shape, offsets = cutting._compute_local_shape_and_global_offset(whole.shape, mesh, list(at), placements)
        found[at] = whole[tuple(slice(start, start + size) for start, size in zip(offsets, shape, strict=True))]
    return found


def named(placements: list[Any]) -> list[str]:
    return [f"S({one.dim})" if isinstance(one, placed.Shard) else "R" for one in placements]


@cuts
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2), (2, 3), (2, 2, 2)])
def test_blocks_that_torch_cut_make_the_whole_again(shape: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    whole = np.arange(float(np.prod(shape))).reshape(shape)
    for placements in product([placed.Shard(0), placed.Shard(1), placed.Replicate()], repeat=len(mesh)):
        found = put_together(cut(whole, mesh, list(placements)), named(list(placements)), "w")
        assert np.array_equal(found, whole), placements


def test_a_shard_that_was_cut_last_is_joined_first() -> None:
    whole = np.arange(16.0).reshape(8, 2)
    # FSDP2 over tensor parallelism: the rows are cut by the second dimension of the mesh, and each piece by the first.
    blocks = {(dp, tp): whole[4 * tp + 2 * dp : 4 * tp + 2 * dp + 2] for dp in (0, 1) for tp in (0, 1)}
    assert np.array_equal(put_together(blocks, ["S(0, 2)", "S(0)"], "w"), whole)


def test_partial_values_are_summed_and_replicas_are_compared() -> None:
    blocks = {(0,): np.array([1.0, 2.0], np.float32), (1,): np.array([10.0, 20.0], np.float32)}
    assert put_together(blocks, ["P(sum)"], "w").tolist() == [11.0, 22.0]
    assert put_together(blocks, ["P(max)"], "w").tolist() == [10.0, 20.0]
    assert put_together(blocks, ["P(avg)"], "w").tolist() == [5.5, 11.0]
    with pytest.raises(UsageError, match="its replicas 0 and 1 differ"):
        put_together(blocks, ["R"], "w")


def stats_of(tensor: torch.Tensor) -> list[float]:
    """The ten numbers of `stats`, by numpy."""
    x = tensor.double().numpy()
    return [x.size, x.mean(), x.std(), x.min(), x.max(), float(np.sqrt((x * x).sum())), int((x == 0).sum()), 0, 0, 0]


@pytest.mark.parametrize("cuts", [[4], [1, 6], [0, 3], [2, 2, 5]])
def test_the_numbers_of_parts_make_those_of_the_whole(cuts: list[int]) -> None:
    x = torch.tensor([3.0, -1.0, 0.0, float("nan"), 2.5, float("inf"), -7.0, 0.0, 4.0], dtype=torch.float64)
    for transform in ({"kind": "stats"}, {"kind": "norm", "order": "l1"}, {"kind": "histogram", "bins": 3, "range": [-4, 4]}):
        kind, value = made(**transform), torch.nan_to_num(x) if transform["kind"] == "norm" else x
        parts = [applied(kind, part).numpy() for part in torch.tensor_split(value, cuts)]
        merged = MERGES[" ".join([str(transform["kind"]), *([str(transform["order"])] if "order" in transform else [])])](parts)
        assert np.allclose(merged, applied(kind, value).numpy(), rtol=1e-12, equal_nan=True), transform


PROGRAM = """
import os, sys, warnings
warnings.filterwarnings("ignore")
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
import probes

kind, out, store, truth = sys.argv[1:]
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
distributed.init_process_group("gloo", store=distributed.FileStore(store, world), rank=rank, world_size=world)
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5))
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
if kind == "fsdp":
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
elif kind == "tp":
    parallelize_module(model, init_device_mesh("cpu", (world,), mesh_dim_names=("tp",)), plan)
else:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], plan)
    mesh = mesh["dp"]
if kind != "tp":
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
spec = {"version": 1, "name": "s", "probes": {
    "w": {"hook": "tensor", "tensors": ["**"], "values": ["data"]},
    "g": {"hook": "tensor", "tensors": ["**"], "stage": "final"},
    "n": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "transforms": [{"kind": "norm"}]},
    "t": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "transforms": [{"kind": "stats"}]},
    "f": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "gather": "full", "transforms": [{"kind": "norm"}]},
    "d": {"hook": "tensor", "tensors": ["**"], "values": ["data"], "gather": "full", "transforms": [{"kind": "fingerprint"}]},
    "o": {"modules": ["2"], "values": ["output"]},
}}
saved, outputs, norms = {}, [], []
model[2].register_forward_hook(lambda module, args, output: outputs.append(output.detach().clone()))
torch.manual_seed(100 + (rank if kind == "fsdp" else 0))
with probes.attach(model, spec, out=out) as run:
    for step, x in enumerate(run.steps([torch.randn(2, 3) for _ in range(2)])):
        for name, one in model.named_parameters():
            saved["w", step, name] = one.full_tensor().detach().clone() if hasattr(one, "full_tensor") else one.detach().clone()
            norms.append(((one.to_local() if hasattr(one, "to_local") else one).detach().norm().item()))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for name, one in model.named_parameters():
            saved["g", step, name] = one.grad.full_tensor().clone() if hasattr(one.grad, "full_tensor") else one.grad.clone()
        optimizer.step()
outputs = [one.trigger_wait() if hasattr(one, "trigger_wait") else one for one in outputs]
torch.save((saved, outputs, norms), f"{truth}.{rank}")
distributed.destroy_process_group()
"""


def trained(folder: Path, kind: str, world: int) -> list[Any]:
    """Train a model that is sharded over ranks; what each rank saw of it by itself."""
    about = {**os.environ, "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": "job", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = (kind, folder / "run", folder / "store", folder / "truth")
    with ThreadPoolExecutor(world) as pool:
        ranks = [pool.submit(programs.run, "-c", PROGRAM, *words, env={**about, "RANK": str(rank)}) for rank in range(world)]
        for rank in ranks:
            assert rank.result().returncode == 0, rank.result().stderr
    return [torch.load(f"{folder / 'truth'}.{rank}", weights_only=True) for rank in range(world)]


@pytest.mark.parametrize(
    ("kind", "world"),
    [("tp", 2), *(pytest.param(*one, marks=pytest.mark.torture) for one in (("fsdp", 2), ("fsdp", 4), ("tp", 4), ("both", 4)))],
)
def test_parts_of_every_rank_make_the_tensors_that_torch_gathers(tmp_path: Path, kind: str, world: int) -> None:
    truth = trained(tmp_path, kind, world)
    run = probes.open(tmp_path / "run")
    for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
        for probe in ("w", "g"):
            series = run[probe, name]
            want = torch.stack([truth[0][0][probe, step, name] for step in (0, 1)])
            found = series.full() if "sharding" in series.attrs else series.sel(rank=0).numpy()
            assert torch.equal(torch.from_numpy(found), want), (probe, name)
        whole = [truth[0][0]["w", step, name].norm().item() for step in (0, 1)]
        if "sharding" in run["n", name].attrs:
            assert run["n", name].full().tolist() == pytest.approx(whole, rel=1e-6), "merged after the transform"
            want = [stats_of(truth[0][0]["w", step, name]) for step in (0, 1)]
            assert np.allclose(run["t", name].full(), want, rtol=1e-6, atol=1e-9)
        for rank in range(world):
            assert run["f", name].sel(rank=rank).numpy().tolist() == pytest.approx(whole, rel=1e-6), "gathered before the transform"
            prints = torch.stack([applied(made("fingerprint"), truth[0][0]["w", step, name]) for step in (0, 1)])
            assert torch.equal(run["d", name].sel(rank=rank).torch(), prints), "a digest that does not depend on the world"
    for rank in range(world):
        assert torch.equal(run["o", "2", "output"].sel(rank=rank).torch(), torch.stack(truth[rank][1]))
        norms = [run["n", name].sel(rank=rank, step=step).numpy().item() for step in (0, 1) for name in run_order(run)]
        assert norms == pytest.approx(truth[rank][2], rel=1e-6)
    same_weights_as_one_process(tmp_path)


def same_weights_as_one_process(folder: Path) -> None:
    """What verifies, reads and compares the launch names the weights that one process with the whole model names."""
    one_process(folder / "one")
    one_process(folder / "other", torch.tensor(1.0))
    one, launch = probes.verify(folder / "one"), probes.verify(folder / "run")
    assert one.ok
    assert launch.ok
    assert one.weights == launch.weights == probes.open(folder / "run").weights != ""
    for name, different in (("one", []), ("other", ["models.weights.2.weight"])):
        places = [origin.place for origin in probes.diff(folder / name, folder / "run").origins]
        assert [place for place in places if place.startswith("models.weights")] == different


def one_process(out: Path, added: torch.Tensor | None = None) -> None:
    """The model of the launch in one process, with something added to its last element."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 5))
    if added is not None:
        model[2].weight.data[4, 7] += added
    with probes.attach(model, {"version": 1, "name": "s", "probes": {"o": {"modules": ["2"], "values": ["output"]}}}, out=out) as run:
        for x in run.steps([torch.ones(1, 3)]):
            model(x)


def run_order(run: Any) -> list[str]:
    """The parameters in the order of the model."""
    return [name for name in ("0.weight", "0.bias", "2.weight", "2.bias") if run["n", name] is not None]
