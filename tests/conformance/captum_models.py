"""The models that captum tests attribution with: functions without parameters, several inputs, tuples, futures, reused layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.conformance.case import Batch, Case, loss_of


def normal(*shape: int) -> Callable[[], Tensor]:
    """Makes a tensor of normal random numbers."""
    return partial(torch.randn, *shape)


def words(*shape: int) -> Callable[[], Tensor]:
    """Makes a tensor of token numbers."""
    return partial(torch.randint, 0, 30, shape)


def three() -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 3) for _ in range(3))


def mask() -> Tensor:
    return torch.rand(2, 3) > 0.5


ROW = {"x": normal(2, 3)}
ROWS = {"input1": normal(2, 3), "input2": normal(2, 3)}
PAIR = {"x1": normal(2, 3), "x2": normal(2, 3)}
TRIPLE = {**PAIR, "x3": normal(2, 3)}
IMAGE = {"x": normal(2, 1, 4, 4)}
SMALL = {"num_embeddings": 30, "embedding_dim": 4}
HIDDEN = {**SMALL, "hidden_dim": 6}

Settings = dict[str, Any]
MODELS: dict[str, tuple[str, str, Settings, Settings]] = {
    "linear-relu-linear": ("BasicLinearReLULinear", "two layers without bias", {"in_features": 3}, ROW),
    "keyword": ("MixedKwargsAndArgsModule", "no parameters, an optional input", {}, {**ROW, "y": normal(2, 3)}),
    "function": ("BasicModel", "no parameters, one input", {}, {"input": normal(2, 3)}),
    "function, 2 inputs": ("BasicModel2", "no parameters, two inputs", {}, ROWS),
    "difference": ("BasicModel3", "no parameters, two inputs", {}, ROWS),
    "numbers": ("BasicModel4_MultiArgs", "a tensor and a number as inputs", {}, {**ROWS, "additional_input1": normal(2, 3)}),
    "list of numbers": ("BasicModel5_MultiArgs", "a list of numbers as input", {}, {**ROWS, "additional_input1": lambda: [2, 3]}),
    "column": ("BasicModel6_MultiTensor", "one column as output", {}, ROWS),
    "joined inputs": ("BasicLinearModel", "two inputs joined", {}, {"x1": normal(2, 3), "x2": normal(2, 4)}),
    "linear": ("BasicLinearModel2", "one layer", {"in_features": 3, "out_features": 2}, {"input": normal(2, 3)}),
    "two linear": (
        "BasicLinearModel_Multilayer",
        "nothing between two layers",
        {"in_features": 3, "hidden_nodes": 4, "out_features": 2},
        {"input": normal(2, 3)},
    ),
    "two relu": ("ReLUDeepLiftModel", "layers without parameters", {}, PAIR),
    "two tanh": ("TanhDeepLiftModel", "the same with negative outputs", {}, PAIR),
    "max pool": ("LinearMaxPoolLinearModel", "a pool between layers", {}, {"x": normal(2, 4)}),
    "reused relu": ("BasicModelWithReusedModules", "one activation called twice", {}, {"inputs": normal(2, 3)}),
    "reused linear": ("BasicModelWithReusedLinear", "one layer called twice", {}, {"inputs": normal(2, 3)}),
    "sum": ("BasicModelWithSparseInputs", "a 0-d output", {}, {"inputs": normal(2, 3), "sparse_list": normal(2)}),
    "pool, in-place": ("BasicModel_MaxPool_ReLU", "an in-place activation after a pool", {"inplace": True}, {"x": normal(2, 6)}),
    "joined, in-place": ("ReLULinearModel", "an in-place activation after a join", {"inplace": True}, PAIR),
    "dropout, in-place": ("SimpleLRPModel", "an in-place activation, dropout", {"inplace": True}, ROW),
    "sequence": ("Conv1dSeqModel", "a Sequential within", {}, {"inputs": normal(2, 4, 1000)}),
    "text": ("TextModule", "two embeddings", {**SMALL, "second_embedding": True}, {"input": words(2, 5), "another_input": words(2, 5)}),
    "embeddings": ("BasicEmbeddingModel", "an embedding within a module", HIDDEN, {"input1": words(2, 5), "input2": words(2, 5)}),
    "pass through": ("PassThroughLayerOutput", "a module that returns its input", {}, {"output": normal(2, 3)}),
    "layer outputs": (
        "BasicModel_GradientLayerAttribution",
        "list, text, int64 and dict outputs, an unused layer",
        {"inplace": True, "unsupported_layer_output": "text"},
        ROW,
    ),
    "tuple output": ("MultiRelu", "two inputs, a tuple", {}, {"arg1": normal(2, 3), "arg2": normal(2, 3)}),
    "layers": ("BasicModel_MultiLayer", "layers of which some are not called", {}, ROW),
    "layers, in-place": ("BasicModel_MultiLayer", "the same with an in-place activation", {"inplace": True}, ROW),
    "layers, two outputs": ("BasicModel_MultiLayer", "a module of two outputs, an unused one", {"multi_input_module": True}, ROW),
    "future": ("BasicModel_MultiLayer_with_Future", "a Future as output", {}, ROW),
    "future of a mask": ("BasicModelBoolInput_with_Future", "bool input, a Future within", {}, {"x": mask}),
    "mask": ("BasicModelBoolInput", "bool input", {}, {"x": mask}),
    "three inputs": ("BasicModel_MultiLayer_MultiInput", "a number among inputs", {}, {**TRIPLE, "scale": lambda: 2}),
    "tuple input": ("BasicModel_MultiLayer_TupleInput", "a tuple as input", {}, {"x": three}),
    "future of three": ("BasicModel_MultiLayer_MultiInput_with_Future", "a Future two levels deep", {}, {**TRIPLE, "scale": lambda: 2}),
    "two models": ("BasicModel_MultiLayer_TrueMultiInput", "one input used by two parts", {}, TRIPLE),
    "convolution, in-place": ("BasicModel_ConvNet_One_Conv", "a view after an in-place activation", {"inplace": True}, IMAGE),
    "dilation": ("BasicModel_ConvNetWithPaddingDilation", "padding, strides", {}, {"x": normal(2, 1, 5, 5)}),
    "convolutions": ("BasicModel_ConvNet", "two convolutions and a softmax", {}, {"x": normal(2, 1, 10, 10)}),
    "convolutions, 1-d": ("BasicModel_ConvNet_MaxPool1d", "the same in one dimension", {}, {"x": normal(2, 1, 10)}),
    "convolutions, 3-d": ("BasicModel_ConvNet_MaxPool3d", "the same in three", {}, {"x": normal(2, 1, 10, 10, 10)}),
}


def build(kind: str, **settings: Any) -> nn.Module:
    """The model with fresh weights, training."""
    from captum.testing.helpers import basic_models

    model: nn.Module = getattr(basic_models, kind)(**settings)
    return model.train()


def batch_of(given: dict[str, Callable[[], Any]]) -> Batch:
    return {name: make() for name, make in given.items()}


def through(model: nn.Module, batches: Iterable[Batch]) -> list[float]:
    """A loop in which inputs take gradients too, as in attribution; a Future is waited for."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01) if parameters else None
    losses = []
    for batch in batches:
        model.zero_grad()
        answer = model(**{name: attributed(value) for name, value in batch.items()})
        loss = loss_of(answer.wait() if isinstance(answer, torch.futures.Future) else answer)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        losses.append(loss.item())
    return losses


def attributed(value: Any) -> Any:
    """An input as a leaf of its own that requires a gradient, where it can."""
    return value.clone().requires_grad_() if isinstance(value, Tensor) and value.is_floating_point() else value


def case_of(name: str) -> Case:
    kind, about, settings, given = MODELS[name]
    return Case(f"captum: {name}", about, partial(build, kind, **settings), partial(batch_of, given), through)
