from __future__ import annotations

import pickle
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import probes
from probes.errors import EditError, PlanError, RunError
from probes.plan.checks import known_names


class Scores(nn.Module):
    """A softmax of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 3).softmax(-1)


class Net(nn.Module):
    """Calls three forms of softmax, once within a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scores = Scores()

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * 2
        z = F.softmax(y, dim=-1)
        z = z + self.scores(y)
        z = 2 * torch.softmax(z, -1)
        values, _ = F.gelu(z).max(dim=-1)
        return values.sum()


def net() -> Net:
    torch.manual_seed(1)
    return Net()


def batch() -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(3))


def spec(**probe: Any) -> dict[str, Any]:
    return {"version": 1, "allow_edits": "edit" in probe, "probes": {"p": {"modules": [""], **probe}}}


def leaves(look: Any) -> dict[str, list[Any]]:
    return {f"{series.key.target}:{series.key.leaf}": series.torch() for series in look.series}


def modes() -> int:
    return torch._C._len_torch_function_stack()


def test_each_call_in_the_forward_of_the_module_itself_is_a_series() -> None:
    model, x = net(), batch()
    found = leaves(probes.look(model, spec(hook="forward", ops=["softmax"]), x))
    first = F.softmax(model.linear(x) * 2, dim=-1)
    second = torch.softmax(first + model.scores(model.linear(x) * 2), -1)
    assert found.keys() == {":output.softmax.0", ":output.softmax.1"}
    assert torch.equal(found[":output.softmax.0"][0], first)
    assert torch.equal(found[":output.softmax.1"][0], second)
    within = leaves(probes.look(model, spec(modules=["**"], types=["Scores"], hook="forward", ops=["softmax"]), x))
    assert torch.equal(within["scores:output.softmax.0"][0], model.scores(model.linear(x) * 2))
    both = leaves(probes.look(model, spec(modules=["", "scores"], hook="forward", ops=["softmax"]), x))
    assert both.keys() == {":output.softmax.0", ":output.softmax.1", "scores:output.softmax.0"}


def test_operators_names_by_path_and_single_calls() -> None:
    model, x = net(), batch()
    found = leaves(probes.look(model, spec(hook="forward", ops=["softmax[1]", "torch.nn.functional.gelu", "max", "add"]), x))
    assert found.keys() == {":output.softmax.1", ":output.gelu.0", ":output.max.0.values", ":output.max.0.indices", ":output.add.0"} or (
        found.keys() == {":output.softmax.1", ":output.gelu.0", ":output.max.0.0", ":output.max.0.1", ":output.add.0"}
    )
    assert torch.equal(found[":output.gelu.0"][0], F.gelu(2 * found[":output.softmax.1"][0]))


def test_inputs_have_positions_and_names_and_gradients_are_those_of_autograd() -> None:
    model, x = net(), batch()
    values = ["output", "input", "grad_output", "grad_input", "grad_input_total"]
    found = leaves(probes.look(model, spec(ops=["softmax[0]"], values=values), x, backward="output"))
    y = (model.linear(x) * 2).detach().requires_grad_()
    z = F.softmax(y, dim=-1)
    z.retain_grad()
    w = 2 * torch.softmax(z + model.scores(y), -1)
    F.gelu(w).max(dim=-1)[0].sum().backward()
    assert z.grad is not None
    share = torch.autograd.grad(F.softmax(y, dim=-1), y, z.grad)[0]
    assert torch.equal(found[":input.softmax.0.0"][0], y)
    assert torch.equal(found[":output.softmax.0"][0], z)
    assert torch.equal(found[":grad_output.softmax.0"][0], z.grad)
    assert torch.equal(found[":grad_input_total.softmax.0.0"][0], y.grad)
    assert torch.equal(found[":grad_input.softmax.0.0"][0], share)


def test_an_edit_of_an_operation_reaches_the_operations_after_it() -> None:
    model, x = net(), batch()
    edit = {"kind": "scale", "by": 0.5}
    one = probes.look(model, spec(ops=["softmax[1]"], values=["output"], edit=edit), x).output
    first = F.softmax(model.linear(x) * 2, dim=-1)
    second = 0.5 * torch.softmax(first + model.scores(model.linear(x) * 2), -1)
    assert torch.equal(one, F.gelu(2 * second).max(dim=-1)[0].sum())
    given = probes.look(model, spec(ops=["gelu"], values=["input.0"], edit={"kind": "zero"}), x).output
    assert given.item() == 0


def test_edits_and_captures_of_one_operation_get_the_value_that_they_select() -> None:
    model, x = net(), batch()
    wanted = {
        "version": 1,
        "allow_edits": True,
        "probes": {
            "before": {"hook": "forward", "modules": [""], "ops": ["gelu"], "sees": "original"},
            "edit": {"hook": "forward", "modules": [""], "ops": ["gelu"], "edit": {"kind": "scale", "by": 2.0}},
            "after": {"hook": "forward", "modules": [""], "ops": ["gelu"]},
        },
    }
    found = probes.look(model, wanted, x)
    assert torch.equal(found["before", "", "output.gelu.0"].torch() * 2, found["after", "", "output.gelu.0"].torch())


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_forward_that_raises_leaves_no_mode(kind: type[BaseException]) -> None:
    class Raising(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.softmax(-1)
            raise kind

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Raising()

        def forward(self, x: Tensor) -> Tensor:
            with suppress(kind):
                self.inner(x)
            assert modes() == 1
            return x.softmax(-1) if modes() else x

    found = leaves(probes.look(Outer(), spec(modules=["", "inner"], hook="forward", ops=["softmax"]), batch()))
    assert found.keys() == {":output.softmax.0", "inner:output.softmax.0"}
    with pytest.raises(kind):
        probes.look(Raising(), spec(hook="forward", ops=["softmax"]), batch())
    assert modes() == 0


class Interrupted(BaseException):
    """What a timeout or the keyboard raises at any place."""


class MayStop(nn.Module):
    """Raises in its forward, where it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.stops = False

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).softmax(-1)
        if self.stops:
            raise Interrupted
        return y * 2


def test_a_run_continues_after_an_interrupted_forward_and_leaves_no_mode(tmp_path: Path) -> None:
    inner = MayStop()
    model = nn.Sequential(nn.Identity(), inner)
    wanted = spec(modules=["1"], hook="forward", ops=["softmax"])
    expected = []
    with probes.attach(model, wanted, out=tmp_path / "run") as run, run.epoch(0):
        for index, x in enumerate([batch() + index for index in range(4)]):
            inner.stops = index == 1
            with suppress(Interrupted), run.step():
                model(x)
                expected.append(inner.linear(x).softmax(-1))
            assert modes() == 0
    found = probes.open(tmp_path / "run")["p", "1", "output.softmax.0"]
    assert found.steps.tolist() == [0, 2, 3]
    assert torch.equal(found.torch(), torch.stack(expected).detach())


def test_no_mode_remains_after_a_backward_that_was_interrupted_in_a_recompute(tmp_path: Path) -> None:
    inner = MayStop()

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            result = checkpoint(self.inner, x.requires_grad_(), use_reentrant=True)
            assert isinstance(result, Tensor)
            return result

    model = Checkpointed()
    wanted = spec(modules=["inner"], ops=["softmax"], values=["output", "grad_output"], expect={"fires": "some"})
    with probes.attach(model, wanted, out=tmp_path / "run") as run, run.epoch(0):
        for stops in (True, False):
            with suppress(Interrupted), run.step():
                inner.stops = False
                loss = model(batch()).square().sum()
                inner.stops = stops
                loss.backward()
        inner.stops = False
        with suppress(Interrupted), run.step():
            loss = model(batch()).square().sum()
            inner.stops = True
            loss.backward()
    assert modes() == 0
    found = probes.open(tmp_path / "run")["p", "inner", "grad_output.softmax.0"]
    assert found.steps.tolist() == [1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_modules_are_captured_once_with_their_gradients(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x, use_reentrant=reentrant)

    x = batch().requires_grad_()
    wanted = spec(modules=["net"], ops=["softmax"], values=["output", "grad_output"])
    found = leaves(probes.look(Checkpointed(), wanted, x, backward="output"))
    plain = leaves(probes.look(net(), spec(ops=["softmax"], values=["output", "grad_output"]), x, backward="output"))
    assert {f"net{key}": value.tolist() for key, value in plain.items()} == {key: value.tolist() for key, value in found.items()}
    assert modes() == 0


def test_an_edit_of_a_recomputed_operation_is_repeated() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.net, x, use_reentrant=False)

    edit = {"kind": "scale", "by": 3.0}
    model, plain, x = Checkpointed(), net(), batch()
    wanted = spec(modules=["net"], ops=["gelu"], values=["output"], edit=edit)
    wanted["probes"]["g"] = {"hook": "tensor", "tensors": ["net.linear.weight"]}
    simple = spec(ops=["gelu"], values=["output"], edit=edit)
    simple["probes"]["g"] = {"hook": "tensor", "tensors": ["linear.weight"]}
    found = probes.look(model, wanted, x, backward="output")["g", "net.linear.weight"].torch()
    assert torch.equal(found, probes.look(plain, simple, x, backward="output")["g", "linear.weight"].torch())


def test_autocast_no_grad_and_other_modes_see_their_own_values() -> None:
    model, x = net(), batch()
    with torch.autocast("cpu", torch.bfloat16):
        low = probes.look(model, spec(hook="forward", ops=["mul[0]"]), x)
    assert low["p", ""].dtype == "bfloat16"
    with torch.no_grad(), torch.device("cpu"):
        assert len(probes.look(model, spec(hook="forward", ops=["softmax"]), x).series) == 2
        assert modes() == 1
    assert modes() == 0


def test_threads_have_separate_modes() -> None:
    seen: list[int] = []

    class Waiting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            thread = threading.Thread(target=lambda: seen.append(modes()))
            thread.start()
            thread.join()
            return x.softmax(-1)

    probes.look(Waiting(), spec(hook="forward", ops=["softmax"]), batch())
    assert seen == [0]


def test_a_model_with_probed_operations_is_pickled_without_them(tmp_path: Path) -> None:
    model = net()
    with probes.attach(model, spec(hook="forward", ops=["softmax"]), out=tmp_path / "run") as run, run.epoch(0), run.step():
        model(batch())
        copied = pickle.loads(pickle.dumps(model.scores))
        assert not copied._forward_hooks
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert modes() == 0


def test_the_file_of_a_run_holds_operations_like_any_value(tmp_path: Path) -> None:
    model = net()
    wanted = spec(ops=["softmax"], values=["output", "grad_output"], transforms=[{"kind": "norm"}], when={"steps": {"every": 2}})
    with probes.attach(model, wanted, out=tmp_path / "run") as run, run.epoch(0):
        for _ in run.steps(range(4)):
            model(batch()).backward()
        text = str(run.summary())
    found = probes.open(tmp_path / "run")
    assert found["p", "", "grad_output.softmax.1"].steps.tolist() == [0, 2]
    assert probes.verify(tmp_path / "run").ok
    assert "missing" not in text


def test_an_operation_that_is_never_called_fails_the_run() -> None:
    with pytest.raises(RunError, match="captured nothing: 1 time not called"):
        probes.look(net(), spec(hook="forward", ops=["tanh"]), batch())


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ({"ops": ["sofmax"]}, "torch has no function or method `sofmax`.*did you mean `softmax`"),
        ({"ops": ["torch.nn.functional.gelo"]}, "there is no function `torch.nn.functional.gelo`.*`gelu`"),
        ({"ops": ["relu_"], "edit": {"kind": "zero"}}, "`relu_` writes to its input"),
    ],
)
def test_an_operation_unknown_to_torch_is_refused(probe: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=f"(?s){message}"):
        probes.resolve(spec(hook="forward", **probe), net())


def test_operations_of_a_compiled_module_are_refused() -> None:
    with pytest.raises(PlanError, match="is compiled, and the operations of a graph cannot be seen"):
        probes.resolve(spec(hook="forward", ops=["softmax"]), torch.compile(net(), backend="eager"))
    torch._dynamo.reset()


class Generating(nn.Module):
    def forward(self, x: Tensor) -> Iterator[Tensor]:
        yield x.softmax(-1)


def test_operations_of_a_forward_that_is_a_generator_are_refused() -> None:
    wanted = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["0"], "ops": ["softmax"]}}}
    with pytest.raises(PlanError, match="the forward of `0` is a generator, whose body runs after the module has returned"):
        probes.resolve(wanted, nn.Sequential(Generating()))


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


class InParallel(nn.Module):
    """Calls replicas of its part in threads, as DataParallel does on several devices."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Softmax()

    def forward(self, x: Tensor) -> Tensor:
        replicas = [self.part._replicate_for_data_parallel() for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            return torch.cat([*pool.map(lambda replica, half: replica(half), replicas, x.chunk(2))])


def test_operations_of_replicas_in_threads_are_captured() -> None:
    x = torch.randn(4, 3)
    wanted = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["part"], "ops": ["softmax"], "expect": {"fires": "some"}}}}
    look = probes.look(InParallel(), wanted, x)
    captures = look["p", "part"].torch()
    halves = {tuple(half.flatten().tolist()) for half in x.softmax(-1).chunk(2)}
    assert {tuple(capture.flatten().tolist()) for capture in captures} == halves


def test_a_failing_edit_stops_the_program() -> None:
    with pytest.raises(EditError, match="needs one leaf, and the value has 2"):
        probes.look(net(), spec(ops=["max"], values=["output"], edit={"kind": "zero"}), batch())
    assert modes() == 0


# Five architectures against a mode written by hand


class ByHand(TorchFunctionMode):
    """Keeps the result of each function by the module that is running; modules are followed by wrapping their forwards."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.stack: list[tuple[str, int]] = []
        self.calls: Counter[str] = Counter()
        self.found: dict[tuple[str, int, str], list[Tensor]] = defaultdict(list)
        for path, module in model.named_modules():
            module.forward = self.followed(path, module.forward)  # type: ignore[method-assign]  # the reference replaces the method

    def followed(self, path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.stack.append((path, self.calls[path]))
            self.calls[path] += 1
            try:
                return forward(*args, **kwargs)
            finally:
                self.stack.pop()

        return wrapper

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if self.stack and isinstance(result, Tensor) and name != "__get__":
            self.found[*self.stack[-1], name.strip("_") if name.startswith("__") else name].append(result.detach().clone())
        return result


def tiny(kind: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        return transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **options)).eval()

    return make


class UNet(nn.Module):
    """Down, up, and a skip connection, with functional activations."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.up = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(12, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.down(x))
        low = F.silu(self.middle(F.max_pool2d(skip, 2)))
        up = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        return self.up(torch.cat([skip, up], dim=1)).sigmoid()


class Sentiment(nn.Module):
    """An LSTM classifier with attention pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, ids: Tensor) -> Tensor:
        states, (last, _) = self.lstm(self.embed(ids))
        weights = (states @ last[-1].unsqueeze(-1)).softmax(dim=1)
        return F.log_softmax(self.head((weights * states).sum(dim=1)), dim=-1)


IDS = {"input_ids": torch.arange(14).reshape(2, 7)}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...], dict[str, Any]]] = {
    "bert": (tiny("bert", vocab_size=30, **SMALL, attn_implementation="eager"), (), IDS),
    "gpt2": (tiny("gpt2", vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=16), (), IDS),
    "vit": (tiny("vit", image_size=8, patch_size=4, **SMALL), (torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8),), {}),
    "unet": (UNet, (torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8),), {}),
    "lstm": (Sentiment, (IDS["input_ids"],), {}),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_operations_of_an_architecture_are_those_of_a_mode_by_hand(name: str) -> None:
    make, args, kwargs = ARCHITECTURES[name]
    torch.manual_seed(0)
    reference = make()
    torch.manual_seed(0)
    model = make()
    by_hand = ByHand(reference)
    with by_hand, torch.no_grad():
        plain = reference(*args, **kwargs)
    known = known_names()
    names = sorted({op for *_, op in by_hand.found if op in known})
    assert len(names) >= 4
    wanted = {"version": 1, "probes": {"p": {"hook": "forward", "modules": ["", "**"], "ops": names, "expect": {"fires": "some"}}}}
    with torch.no_grad():
        look = probes.look(model, wanted, *args, **kwargs)
    expected = {
        (path, call, f"output.{op}.{index}"): value
        for (path, call, op), values in by_hand.found.items()
        if op in known
        for index, value in enumerate(values)
    }
    found = {
        (series.key.target, capture.clock.call, series.key.leaf): torch.as_tensor(capture.value)
        for series in look.series
        for capture in series
    }
    assert expected.keys() <= found.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
    first = next(iter(plain.values())) if isinstance(plain, dict) else plain
    again = next(iter(look.output.values())) if isinstance(look.output, dict) else look.output
    assert torch.equal(first, again)


@pytest.mark.parametrize("autocast", [True, False])
def test_training_with_probed_operations_is_bit_for_bit_as_without_probes(autocast: bool, tmp_path: Path) -> None:
    results = []
    for probed in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), net(), nn.Flatten(0))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        wanted = spec(modules=["**"], ops=["softmax", "mul", "linear"], values=["output", "input", "grad_output"], expect={"fires": "some"})
        run = probes.attach(model, wanted, out=tmp_path / "run") if probed else nullcontext()
        with run:
            for _ in range(3):
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = model(F.dropout(batch())).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        results.append([loss.detach(), *(parameter.detach().clone() for parameter in model.parameters()), torch.get_rng_state()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_transforms_of_other_probes_on_the_module_are_not_operations_of_the_module(tmp_path: Path) -> None:
    model = net()
    norms = [{"kind": "reduce", "dims": [0], "op": "sum"}, {"kind": "norm"}]
    wanted = {
        "version": 1,
        "probes": {
            "sums": {"hook": "forward", "modules": ["scores"], "ops": ["softmax", "sum", "mul", "abs"], "expect": {"fires": "some"}},
            "before": {"modules": ["scores"], "values": ["input", "output"], "transforms": norms, "when": {"steps": {"every": 2}}},
        },
    }
    with probes.attach(model, wanted, out=tmp_path / "run") as run, run.epoch(0):
        for _ in run.steps(range(4)):
            model(batch())
    assert {series.key.leaf for series in probes.open(tmp_path / "run").series if series.key.probe == "sums"} == {
        "output.softmax.0",
        "output.mul.0",
    }
