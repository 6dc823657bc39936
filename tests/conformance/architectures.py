"""29 architectures of transformers, each built from a tiny configuration without weights."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from tests.conformance.case import Batch, Case

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "num_local_experts": 4, "num_experts": 4, "moe_intermediate_size": 16}
IMAGE = {"image_size": 32, "patch_size": 8, "num_channels": 3}
STAGES = {"num_channels": 3, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2], "num_stages": 2}
DECODER = {"decoder_start_token_id": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 64}
LAYERS = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
WIDTH = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, **LAYERS}
TEXT = {**SMALL, "projection_dim": 16}

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("Conv1D, tuple outputs, dropout that is not called", {**SMALL, "n_positions": 32}),
    "llama": ("keywords only, rotary tuple, a cache in the output", GROUPED),
    "mistral": ("sliding window", GROUPED),
    "qwen2": ("grouped heads with bias", GROUPED),
    "qwen3": ("norms of queries and keys", GROUPED),
    "gemma": ("scaled embeddings", GROUPED),
    "gemma2": ("soft capping, norms on both sides", GROUPED),
    "phi": ("parallel attention and feed-forward", SMALL),
    "phi3": ("fused projections", GROUPED),
    "mixtral": ("routing to experts", EXPERTS),
    "qwen2_moe": ("routing, and a shared expert", {**EXPERTS, "shared_expert_intermediate_size": 16}),
    "gpt_neox": ("partial rotary", SMALL),
    "opt": ("learned positions", {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "bloom": ("alibi", {**SMALL, "n_layer": 2, "n_head": 4}),
    "mamba": ("a fused path that goes around its modules", {**SMALL, "state_size": 4}),
    "bert": ("attention masks", SMALL),
    "roberta": ("positions from padding", {**SMALL, "pad_token_id": 1}),
    "distilbert": ("one output", {**SMALL, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "deberta-v2": ("disentangled attention", SMALL),
    "modernbert": ("alternating attention", {**SMALL, "cls_token_id": 1, "sep_token_id": 2}),
    "albert": ("one layer for all depths", {**SMALL, "embedding_size": 16}),
    "bart": ("encoder and decoder, shared embeddings", {**WIDTH, **DECODER, "max_position_embeddings": 32}),
    "vit": ("images", {**SMALL, **IMAGE}),
    "swin": (
        "shifted windows, outputs in addition to the loss",
        {**IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 4},
    ),
    "resnet": ("in-place ReLU, `+=`, batch norm", STAGES),
    "convnext": ("depthwise convolutions", {**STAGES, "patch_size": 4}),
    "mobilenet_v2": ("in-place ReLU6", {"depth_multiplier": 0.25, "image_size": 32, "min_depth": 4, "depth_divisible_by": 4}),
    "whisper": (
        "audio, encoder and decoder",
        {**WIDTH, **DECODER, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 16},
    ),
    "clip": ("two towers", {"text_config": {**TEXT}, "vision_config": {**SMALL, **IMAGE, "projection_dim": 16}, "projection_dim": 16}),
}
IMAGES = ("vit", "swin", "resnet", "convnext", "mobilenet_v2")
FAST = ("gpt2", "llama", "mixtral", "albert", "resnet", "bart")


def tokens() -> torch.Tensor:
    return torch.randint(3, 64, (2, 7))


def batch_of(name: str) -> Batch:
    """What an architecture is called with."""
    pixels = {"pixel_values": torch.randn(2, 3, 32, 32)}
    if name in IMAGES:
        return pixels
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 16), "decoder_input_ids": tokens()}
    if name == "clip":
        return {"input_ids": tokens(), **pixels}
    return {"input_ids": tokens(), **({"decoder_input_ids": tokens()} if name == "bart" else {})}


def build(name: str, **settings: Any) -> nn.Module:
    """The model with fresh weights, training."""
    from transformers import AutoConfig, AutoModel

    model: nn.Module = AutoModel.from_config(AutoConfig.for_model(name, **settings))
    return model.train()


def case_of(name: str) -> Case:
    about, settings = CONFIGURATIONS[name]
    return Case(name, about, partial(build, name, **settings), partial(batch_of, name))
