"""Questions that users of similar tools ask, each with the spec that answers it, compared with code by hand on a small GPT-2."""

from __future__ import annotations

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
def test_a_question_about_one_call_is_answered_by_one_probe(question: str) -> None:
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


def test_what_does_the_model_say_without_this_part() -> None:
    edit = {"hook": "forward", "modules": [f"{BLOCK}.mlp"], "edit": {"kind": "zero"}}
    found = probes.look(gpt2(), {"version": 1, "allow_edits": True, "probes": {"ablate": edit}}, **CALL)
    assert torch.equal(found.output.logits, logits_without_block(gpt2()))


def test_what_does_the_model_say_without_attention_to_the_first_token() -> None:
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


def test_what_does_the_model_say_with_a_direction_of_mine_added() -> None:
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
