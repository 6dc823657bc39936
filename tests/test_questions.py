"""Questions that users of similar tools ask, each with the spec that answers it, compared with code by hand on a small GPT-2."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import probes
from probes.provenance.own_code import with_functions
from tests.runner.in_memory import in_memory

IDS = torch.arange(14).reshape(2, 7)
CALL = {"input_ids": IDS, "labels": IDS}
BLOCK = "transformer.h.1"


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, attn_implementation="eager", use_cache=False)
    return transformers.GPT2LMHeadModel(config).eval()


def hooked(path: str, then: Callable[[Any], Any] | None = None) -> Callable[[nn.Module], Any]:
    """What a forward hook by hand sees of a module; `then` gives another output."""

    def look(model: nn.Module) -> Any:
        seen: list[Any] = []

        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            seen.append(output[0] if isinstance(output, tuple) else output)
            return None if then is None else then(output)

        handle = model.get_submodule(path).register_forward_hook(hook)
        loss = model(**CALL).loss
        handle.remove()
        return seen[0], loss

    return look


def activation(model: nn.Module) -> Tensor:
    return hooked(f"{BLOCK}.mlp")(model)[0].detach()


def gradient(model: nn.Module) -> Tensor:
    value, loss = hooked(f"{BLOCK}.mlp")(model)
    return torch.autograd.grad(loss, value)[0]


def attention(model: nn.Module) -> Tensor:
    found = model(**CALL, output_attentions=True).attentions[1]
    assert isinstance(found, Tensor)
    return found.detach()


def attention_entropy(model: nn.Module) -> Tensor:
    weights = attention(model).double()
    return -torch.xlogy(weights, weights).sum(dim=-1)


def saliency(model: nn.Module) -> Tensor:
    value, loss = hooked("transformer.wte")(model)
    return torch.autograd.grad(loss, value)[0].norm(dim=-1)


def weight_gradient(model: nn.Module) -> Tensor:
    loss = model(**CALL).loss
    return torch.autograd.grad(loss, model.get_parameter(f"{BLOCK}.mlp.c_fc.weight"))[0]


def logits_without_block(model: nn.Module) -> Tensor:
    handle = model.get_submodule(f"{BLOCK}.mlp").register_forward_hook(lambda module, args, output: torch.zeros_like(output))
    found: Tensor = model(**CALL).logits.detach()
    handle.remove()
    return found


def largest_singular_value(value: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(value.flatten(0, -2), ord=2)


QUESTIONS: dict[str, tuple[dict[str, Any], str, Callable[[nn.Module], Tensor]]] = {
    "What does this block return for this batch?": ({"hook": "forward", "modules": [f"{BLOCK}.mlp"]}, "output", activation),
    "What is the gradient of the loss with respect to it?": (
        {"modules": [f"{BLOCK}.mlp"], "values": ["grad_output"]},
        "grad_output",
        gradient,
    ),
    "What are the attention weights, which no module returns?": (
        {"hook": "forward", "modules": [f"{BLOCK}.attn"], "ops": ["softmax"]},
        "output.softmax.0",
        attention,
    ),
    "How sharp is the attention of each head?": (
        {
            "hook": "forward",
            "modules": [f"{BLOCK}.attn"],
            "ops": ["softmax"],
            "dims": ["batch", "head", "query", "key"],
            "transforms": [{"kind": "entropy", "dim": "key"}],
        },
        "output.softmax.0",
        attention_entropy,
    ),
    "Which tokens matter to the loss?": (
        {
            "modules": ["transformer.wte"],
            "values": ["grad_output"],
            "dims": ["batch", "token", "feature"],
            "transforms": [{"kind": "norm", "dims": ["feature"]}],
        },
        "grad_output",
        saliency,
    ),
    "What is the gradient of this weight, as the optimizer would see it?": (
        {"hook": "tensor", "tensors": [f"{BLOCK}.mlp.c_fc.weight"], "stage": "final"},
        "grad",
        weight_gradient,
    ),
    "What are the logits?": ({"modules": [""], "values": ["output.logits"]}, "output.logits", lambda model: model(**CALL).logits.detach()),
    "What goes into the head?": (
        {"modules": ["lm_head"], "values": ["input"]},
        "input.input",
        lambda model: hooked("transformer.ln_f")(model)[0].detach(),
    ),
    "How large is it by a measure of my own?": (
        {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "transforms": [{"kind": "python", "function": "largest_singular_value"}]},
        "output",
        lambda model: largest_singular_value(activation(model)),
    ),
    "What goes into the softmax, before the weights?": (
        {
            "modules": [f"{BLOCK}.attn"],
            "ops": ["softmax"],
            "values": ["input.0"],
            "transforms": [{"kind": "python", "function": "softmax"}],
        },
        "input.softmax.0.0",
        attention,
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_probe_answers_a_question_about_one_call(question: str) -> None:
    probe, leaf, by_hand = QUESTIONS[question]
    spec: Any = {"version": 1, "probes": {"p": probe}}
    mine = {"largest_singular_value": largest_singular_value, "softmax": lambda value: value.softmax(-1)}
    used = [transform["function"] for transform in probe.get("transforms", ()) if transform["kind"] == "python"]
    if used:
        spec = probes.load(spec)
        spec = with_functions(spec, functions={name: mine[name] for name in used})
    model = gpt2()
    needs_gradient = "grad" in leaf
    found = probes.look(model, spec, **CALL, backward="loss" if needs_gradient else None)
    (series,) = found.series
    assert series.key.leaf == leaf
    expected = by_hand(gpt2())
    torch.testing.assert_close(series.torch()[0].to(expected.dtype), expected, rtol=1e-6, atol=1e-6)


def test_what_does_the_model_answer_without_this_part() -> None:
    edit = {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "edit": {"kind": "zero"}}
    found = probes.look(gpt2(), {"version": 1, "allow_edits": True, "probes": {"ablate": edit}}, **CALL)
    assert torch.equal(found.output.logits, logits_without_block(gpt2()))


def test_what_does_the_model_answer_without_attention_to_the_first_token() -> None:
    edit = {
        "hook": "forward",
        "modules": [f"{BLOCK}.attn"],
        "ops": ["softmax"],
        "dims": ["batch", "head", "query", "key"],
        "edit": {"kind": "zero", "at": {"key": 0}},
    }
    wanted = {"version": 1, "allow_edits": True, "probes": {"mask": edit, "see": {**edit}}}
    del wanted["probes"]["see"]["edit"]
    found = probes.look(gpt2(), wanted, **CALL)["see", f"{BLOCK}.attn"].torch()[0]
    expected = attention(gpt2())
    expected[..., 0] = 0
    assert torch.equal(found, expected)


def test_how_do_loss_learning_rate_and_gradient_norm_move_together(tmp_path: Path) -> None:
    """Four questions in one run: the loss, the learning rate, the gradient's norm and a metric of the loop, on one axis."""
    spec = {
        "version": 1,
        "probes": {
            "loop": {"values": ["loop.loss", "loop.lr", "loop.perplexity"]},
            "norm": {"hook": "tensor", "tensors": ["lm_head.weight"], "stage": "final", "transforms": [{"kind": "norm"}]},
        },
    }
    model = gpt2().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 3)
    by_hand = []
    with probes.attach(model, spec, out=tmp_path / "run") as run, run.epoch(0):
        for _ in run.steps(range(3)):
            loss = model(**CALL).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss, lr=schedule.get_last_lr()[0], perplexity=loss.detach().exp())
            grad = model.get_parameter("lm_head.weight").grad
            assert grad is not None
            by_hand.append((loss.item(), schedule.get_last_lr()[0], loss.detach().exp().item(), grad.norm().item()))
            schedule.step()
    found = probes.open(tmp_path / "run")
    columns = [found["loop", "", f"loop.{name}"].numpy() for name in ("loss", "lr", "perplexity")]
    columns.append(found["norm", "lm_head.weight"].numpy())
    torch.testing.assert_close(torch.from_numpy(np.stack(columns, axis=1)), torch.tensor(by_hand, dtype=torch.float64), rtol=1e-5, atol=0)


def test_what_does_the_optimizer_change_and_hold_and_when_is_it_unusual() -> None:
    """Three questions in one run: the update of a weight, Adam's moment of it, and the steps with a large update."""
    weight = f"{BLOCK}.mlp.c_fc.weight"
    keys = {"hook": "tensor", "tensors": [weight]}
    spec = {
        "version": 1,
        "probes": {
            "optimizer": {**keys, "values": ["update", "state.exp_avg"]},
            "large": {**keys, "values": ["update"], "transforms": [{"kind": "norm"}], "where": {"above": 0.02}},
        },
    }
    model = gpt2().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    updates, moments = [], []
    with in_memory(model, spec) as run, run.epoch(0):
        for index in run.steps(range(3)):
            optimizer.param_groups[0]["lr"] = 1e-3 if index == 1 else 1e-5
            before = model.get_parameter(weight).detach().clone()
            optimizer.zero_grad()
            model(**CALL).loss.backward()
            optimizer.step()
            updates.append(model.get_parameter(weight).detach() - before)
            moments.append(optimizer.state[model.get_parameter(weight)]["exp_avg"].clone())
    assert torch.equal(run.found["optimizer", weight, "update"].torch(), torch.stack(updates))
    assert torch.equal(run.found["optimizer", weight, "state.exp_avg"].torch(), torch.stack(moments))
    assert [index for index, one in enumerate(updates) if one.norm() > 0.02] == [1]
    assert run.found["large", weight].steps.tolist() == [1]


def test_what_does_the_model_answer_with_an_added_direction() -> None:
    direction = torch.linspace(-1, 1, 16)
    edit = {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "edit": {"kind": "add", "from": {"given": "direction"}}}
    model = gpt2()
    with (
        torch.no_grad(),
        in_memory(
            model, {"version": 1, "allow_edits": True, "probes": {"steer": {**edit, "when": {"phases": ["eval"]}}}}, {"direction": 0.0}
        ) as run,
    ):
        run.set(direction=direction)
        found = model(**CALL).logits
        handle = (other := gpt2()).get_submodule(f"{BLOCK}.mlp").register_forward_hook(lambda module, args, output: output + direction)
        assert torch.equal(found, other(**CALL).logits)
        handle.remove()


IDS_OF_SAMPLES = [40, 41, 42, 43, 44, 45, 46, 47]
SAMPLES = torch.arange(8 * 7).reshape(8, 7) ** 2 % 29  # no two are the same: equal ones rank as their batches round
CLASSES = torch.tensor([0, 1, 1, 0, 2, 2, 0, 1])


def batches() -> list[Tensor]:
    return list(torch.arange(8).split(4))


def pooled(model: nn.Module, samples: Tensor) -> Tensor:
    """The mean over tokens of what a block returns, by a hook by hand."""
    seen: list[Tensor] = []
    handle = model.get_submodule(f"{BLOCK}.mlp").register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    model(samples)
    handle.remove()
    return seen[0].double().mean(dim=1)


def test_how_far_have_weights_moved_since_the_start_and_in_which_direction_does_a_step_go() -> None:
    """Two questions: the distance to the first step, and whether consecutive updates point the same way."""
    weight = f"{BLOCK}.mlp.c_fc.weight"
    keys = {"hook": "tensor", "tensors": [weight]}
    spec = {
        "version": 1,
        "probes": {
            "moved": {**keys, "values": ["data"], "against": {"step": "first"}, "transforms": [{"kind": "relative_error"}]},
            "turned": {**keys, "values": ["update"], "against": {"step": "previous"}, "transforms": [{"kind": "cosine"}]},
        },
    }
    model = gpt2().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = []
    with in_memory(model, spec) as run, run.epoch(0):
        for _ in run.steps(range(4)):
            weights.append(model.get_parameter(weight).detach().clone())
            optimizer.zero_grad()
            model(**CALL).loss.backward()
            optimizer.step()
    weights.append(model.get_parameter(weight).detach().clone())
    moved = [(later - weights[0]).norm() / weights[0].norm() for later in weights[1:4]]
    torch.testing.assert_close(run.found["moved", weight].torch(), torch.stack(moved), rtol=1e-5, atol=0)
    updates = [(later - earlier).flatten() for earlier, later in itertools.pairwise(weights)]
    turned = [torch.cosine_similarity(later, earlier, dim=0) for earlier, later in itertools.pairwise(updates)]
    torch.testing.assert_close(run.found["turned", weight].torch(), torch.stack(turned), rtol=1e-4, atol=0)


def test_where_does_a_changed_model_begin_to_differ_from_the_original(tmp_path: Path) -> None:
    blocks = {"hook": "forward", "modules": ["transformer.wte", "transformer.h.*", "lm_head"], "values": ["output"]}
    original, changed = gpt2(), gpt2()
    with torch.no_grad():
        changed.get_parameter("transformer.h.1.mlp.c_proj.bias").add_(0.1)
    spec = {"version": 1, "probes": {"blocks": {**blocks, "when": {"phases": ["eval"]}}}}
    with probes.attach(original, spec, out=tmp_path / "original"), torch.no_grad():
        original(**CALL)
    compared = {**blocks, "against": {"run": str(tmp_path / "original")}, "transforms": [{"kind": "relative_error"}]}
    spec["probes"]["blocks"] = {**compared, "when": {"phases": ["eval"]}}
    with torch.no_grad(), in_memory(changed, spec) as run, run.epoch(0):
        changed(**CALL)
    found = {one.key.target: float(one.numpy()[0]) for one in run.found.series}
    assert [target for target, error in found.items() if error == 0] == ["transformer.h.0", "transformer.wte"]
    one, other = (model(**CALL).logits.detach() for model in (changed, original))
    assert found["lm_head"] == pytest.approx(float((one - other).norm() / other.norm()), rel=1e-5)


def test_which_samples_excite_a_unit_most_and_what_is_the_mean_of_each_class() -> None:
    """Two questions in one pass: the ids of the strongest samples of each unit, and class means."""
    keys = {
        "hook": "forward",
        "modules": [f"{BLOCK}.mlp"],
        "dims": ["batch", "token", "unit"],
        "when": {"phases": ["eval"]},
    }
    mean = [{"kind": "cast", "dtype": "float64"}, {"kind": "reduce", "op": "mean", "dims": ["token"]}]
    spec = {
        "version": 1,
        "probes": {
            "strongest": {**keys, "transforms": [*mean, {"kind": "accumulate", "what": "topk", "size": 3}]},
            "classes": {**keys, "transforms": [*mean, {"kind": "accumulate", "what": "sums", "by": "loop.labels", "labels": 3}]},
        },
    }
    model = gpt2()
    with torch.no_grad(), in_memory(model, spec) as run, run.epoch(0):
        for rows in run.steps(batches(), ids=lambda rows: [IDS_OF_SAMPLES[row] for row in rows]):
            model(SAMPLES[rows])
            run.log(labels=CLASSES[rows])
    values = torch.cat([pooled(gpt2(), SAMPLES[rows]) for rows in batches()])
    strongest = run.found["strongest", f"{BLOCK}.mlp"].torch()[0]
    assert torch.equal(strongest[1].long(), torch.tensor(IDS_OF_SAMPLES)[values.sort(dim=0, descending=True).indices[:3]])
    sums = run.found["classes", f"{BLOCK}.mlp"].torch()[0]
    means = torch.stack([values[label == CLASSES].mean(dim=0) for label in range(3)])
    torch.testing.assert_close(sums[2] / sums[0], means, rtol=1e-6, atol=1e-9)


def test_which_blocks_have_the_same_representation() -> None:
    module = "transformer.h.{0,1}"
    keys = {"hook": "forward", "modules": [module], "when": {"phases": ["eval"]}}
    spec = {"version": 1, "probes": {"alike": {**keys, "against": {"series": "alike", "target": "**"}, "transforms": [{"kind": "cka"}]}}}
    model = gpt2()
    with torch.no_grad(), in_memory(model, spec) as run, run.epoch(0):
        for rows in run.steps(batches()):
            model(SAMPLES[rows])
    alike = float(run.found["alike", "transformer.h.1"].numpy()[0, 0])
    states = [gpt2()(SAMPLES[rows], output_hidden_states=True).hidden_states for rows in batches()]
    sums = np.zeros(3)
    for rows, state in zip(batches(), states, strict=True):
        last = outputs_of(gpt2(), "transformer.h.1", SAMPLES[rows])
        sums += [hsic(state[1], last), hsic(state[1], state[1]), hsic(last, last)]
    assert alike == pytest.approx(sums[0] / np.sqrt(sums[1] * sums[2]), rel=1e-6)


def outputs_of(model: nn.Module, path: str, samples: Tensor) -> Tensor:
    seen: list[Tensor] = []

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output).detach())

    handle = model.get_submodule(path).register_forward_hook(hook)
    model(samples)
    handle.remove()
    return seen[0]


def hsic(first: Tensor, second: Tensor) -> float:
    """The unbiased estimate, by the formula with a matrix of ones."""
    k, m = (one.detach().double().flatten(1) @ one.detach().double().flatten(1).T for one in (first, second))
    k, m = (one - one.diag().diag() for one in (k, m))
    count, ones = len(k), torch.ones(len(k), 1, dtype=torch.float64)
    sums = (ones.T @ k @ ones) * (ones.T @ m @ ones) / ((count - 1) * (count - 2))
    total = (k @ m).trace() + sums - 2 / (count - 2) * (ones.T @ k @ m @ ones)
    return float(total / (count * (count - 3)))


def test_what_does_the_model_answer_if_the_last_token_of_each_sample_is_steered() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
    direction = torch.linspace(-2, 2, 16)
    edit = {"kind": "add", "from": {"given": "direction"}, "scale": {"given": "strength"}, "at": {"token": "last_of mask"}}
    probe = {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "dims": ["batch", "token", "unit"], "edit": edit, "when": {"phases": ["eval"]}}
    given = {"direction": direction, "strength": 0.5, "mask": mask}
    model = gpt2()
    with torch.no_grad(), in_memory(model, {"version": 1, "allow_edits": True, "probes": {"steer": probe}}, given):
        found = model(**CALL).logits

    def steered(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        result = output.clone()
        for sample, last in enumerate((6, 3)):
            result[sample, last] += 0.5 * direction
        return result

    handle = (other := gpt2()).get_submodule(f"{BLOCK}.mlp").register_forward_hook(steered)
    assert torch.equal(found, other(**CALL).logits)
    handle.remove()


def test_which_activations_occur_together_with_a_large_loss() -> None:
    losses = [float(gpt2()(SAMPLES[row : row + 1], labels=SAMPLES[row : row + 1]).loss.detach()) for row in range(8)]
    bound = float(np.median(losses))
    keys = {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "when": {"phases": ["eval"]}, "where": {"loop": "loss", "above": bound}}
    model = gpt2()
    with torch.no_grad(), in_memory(model, {"version": 1, "probes": {"large": keys}}) as run, run.epoch(0):
        for row in run.steps(range(8)):
            loss = model(SAMPLES[row : row + 1], labels=SAMPLES[row : row + 1]).loss
            run.log(loss=loss)
    values = [outputs_of(gpt2(), f"{BLOCK}.mlp", SAMPLES[row : row + 1]) for row, loss in enumerate(losses) if loss > bound]
    assert len(values) == 4
    assert torch.equal(run.found["large", f"{BLOCK}.mlp"].torch(), torch.stack(values))
