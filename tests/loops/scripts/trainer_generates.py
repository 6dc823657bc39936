"""transformers' Seq2SeqTrainer, the library itself, with `generate` in its evaluation and accumulation over two batches.
---
group: frameworks
captured: T5ForConditionalGeneration
target: lm_head
train: [[2, 1], [2, 1]]
eval: [[4, 4], [4, 4]]
table:
  step: "`train`: one optimizer step; `eval`: one batch of the evaluation loader"
  microstep: "`train`: each batch that is accumulated; `eval`: the call of the encoder and two of the model that `generate` makes, and the one for the loss"
  epoch: one pass over the training loader
  phase: "`train` and `eval`"
why: In `eval` a step is a pull of the phase's own loader; all that `generate` calls for a batch are its microsteps.
"""

import os
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
warnings.simplefilter("ignore")

import torch
from transformers import PrinterCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, set_seed

set_seed(0)
config = T5Config(
    vocab_size=12,
    d_model=8,
    d_kv=4,
    d_ff=8,
    num_layers=1,
    num_heads=2,
    dropout_rate=0.0,
    decoder_start_token_id=0,
    pad_token_id=0,
    eos_token_id=1,
)
model = T5ForConditionalGeneration(config)
model.generation_config.max_new_tokens = 2
model.generation_config.min_new_tokens = 2


def rows(count):
    return [{"input_ids": torch.randint(2, 12, (4,)), "labels": torch.randint(2, 12, (3,))} for _ in range(count)]


arguments = Seq2SeqTrainingArguments(
    "out",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    per_device_eval_batch_size=2,
    gradient_accumulation_steps=2,
    eval_strategy="epoch",
    predict_with_generate=True,
    save_strategy="no",
    logging_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Seq2SeqTrainer(
    model=model,
    args=arguments,
    train_dataset=rows(6),
    eval_dataset=rows(4),
    compute_metrics=lambda prediction: {"length": prediction.predictions.shape[1]},
)
trainer.remove_callback(PrinterCallback)  # it prints how long things took
trainer.train()
print(sum(p.double().sum().item() for p in model.parameters()))
