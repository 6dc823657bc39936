"""Write docs/steps.md: what step, microstep, epoch and phase are in each style of training loop.

Usage: python docs/steps.py     (tests/loops/test_steps_page.py compares; tests/loops/test_scripts.py runs each row)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.loops.truth import Truth, truths  # the path to it is set above

PAGE = Path(__file__).with_name("steps.md")
GROUPS = {
    "steps": "One batch, several updates, or an update of several batches",
    "loaders": "How the batches come",
    "phases": "Evaluation, and calls before training",
    "models": "Several models",
    "parts": "Calls of parts of a model",
    "endings": "How a loop ends",
    "tools": "Tracers, copies and processes",
    "frameworks": "Frameworks",
}
USUAL = {"step": "one batch", "microstep": "0", "epoch": "one pass over the training loader", "phase": "`train`"}
HEAD = """# What is a step

Every capture has a clock: `epoch`, `phase`, `step`, `microstep` and `call`. For a plain training loop there is nothing to set up:

```python
for epoch in range(2):  # epoch: one pass over the training loader
    model.train()
    for x, y in train_loader:  # step: one batch, in phase `train`
        loss = criterion(model(x), y)  # microstep 0: the first call of the model in this step
        loss.backward()
        optimizer.step()  # the next batch begins the next step
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for x, y in test_loader:  # phase `eval`: each batch of this loader is a step, counted separately
            model(x)
```

`probes run` prints the rule when it starts and what it counted when it ends. The rules are:

- **The model** is the one whose parameters an optimizer updates, and not the first one that the script calls.
- **A step** of phase `train` ends when the loop gets the next batch from the loader after `optimizer.step()`. Gradient accumulation
  over four batches is one step with microsteps 0 to 3.
  A script without a loader begins a step with the first training call after `optimizer.step()`.
- **Several optimizer steps on one batch** are one step. `clock: {step: update}` makes each of them a step.
- **A step of any other phase** is a batch of the loader that this phase iterates. Without such a loader it is one call of the model.
- **A microstep** is one call of the model, or of a part that is called directly, within a step. **`call`** counts the calls of one module
  within that. A call of a part without parameters by itself, such as an activation, a loss or a metric, is not counted: it belongs to the
  microstep of the call of the model before it, as long as the step of that call is open, and is not captured otherwise.
- **An epoch** ends when a training loader starts again and the model trains on it. Evaluation on the same loader starts no epoch.
  If the loop gets a batch in train mode, the first call with it belongs to the new epoch in any phase, such as an adversarial attack on it.
  Calls before the first pass belong to epoch 0.
  After a warm-up on some batches of one loader, the next loader starts epochs, even if the script keeps the first one.
  Loaders that are iterated in turn are one epoch, unless the epoch before was over one loader: then each pass is an epoch, as in a
  training and a fine-tuning after it.
- **Threads.** The loop may run in any thread: `probes` follows the loaders of the thread in which the model is trained. If another
  thread fetches the batches of an iterator that the loop has made (a background loader), a batch is in use from the first training
  call after `optimizer.step()`, and the epoch counts as complete when all of its batches were fetched. If the other thread makes the
  iterator, too, nothing tells one epoch from the next: all steps are in epoch 0, and `clock.epoch_steps` separates them.
- **The phase** is `train` if the model is in train mode and gradients are enabled, or only off because an `autograd.Function` runs its
  forward; otherwise it is `eval`.
- **A step is dropped**, with its captures, if an exception ends it. A gradient that arrives in it for an earlier step is
  kept. **An epoch is incomplete** if its batches end early, by `break` or by an exception.

One case is counted wrongly: a script makes a new training loader for each epoch, and calls the model without gradients on the first batch
before it trains on it (pseudo-labels). At this call, `probes` cannot know that the new loader is for training, so it counts the call in
the epoch before.

If the default does not fit, `clock.step` sets what ends a training step:

| `clock.step` | a training step is |
|---|---|
| `optimizer` (default) | the batches up to an optimizer step, and all that follows until the next batch |
| `update` | each optimizer step, also if several come on one batch |
| `batch` | each batch of the training loader |
| `forward` | each call of the model |

`clock.epoch_steps: N` ends an epoch after N training steps. Inside your own loop, `run.epochs`, `run.steps`, `run.step` and `run.phase`
set all of this directly. A step of `run.steps` ends when the loop goes on or is over, whether by `break`, `return` or an iterator around
it such as `islice`. If a variable holds the iterator, as in `steps = run.steps(loader)`, an exception in the loop does not end it: if the
program catches the exception within the epoch, the step stays open as long as the variable, and is kept. `with run.step():` drops it.

## Table of styles

Each row is a script in [tests/loops/scripts](../tests/loops/scripts). The tests run it and compare every capture with the last column,
which lists the training and evaluation steps of each epoch: `3, 3` means two epochs of three steps, `2+2+1` means one epoch of three
steps with two, two and one microsteps, `1x3` one step with three. A number in
parentheses is a step that was dropped. `*` marks an epoch that is incomplete.
"""


def page() -> str:
    """The whole page."""
    known = list(truths())
    return HEAD + "".join(_section(name, title, known) for name, title in GROUPS.items()) + "\nWritten by `python docs/steps.py`.\n"


def _section(name: str, title: str, known: list[Truth]) -> str:
    of_group = [truth for truth in known if truth.data["group"] == name]
    rows = [_row(truth) for truth in sorted(of_group, key=lambda truth: (truth.style != "plain", truth.style, truth.case))]
    columns = "| script | step | microstep | epoch | phase | steps of each epoch |\n|---|---|---|---|---|---|\n"
    return f"\n### {title}\n\n{columns}" + "".join(rows)


def _row(truth: Truth) -> str:
    if truth.case:
        return f"| ... with `{_spec(truth)}` | | | | | {_counts(truth)} |\n"
    cells = {**USUAL, **truth.data.get("table", {})}
    name = truth.style.replace("_", " ").capitalize()
    return f"| [{name}](../tests/loops/scripts/{truth.style}.py) | {' | '.join(cells[key] for key in USUAL)} | {_counts(truth)} |\n"


def _spec(truth: Truth) -> str:
    """What the spec of a case says, as YAML in one line."""
    spec = truth.data.get("spec") or {"probes": {"values": {"modules": [truth.target]}}}
    return _flow(spec).removeprefix("{").removesuffix("}")


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    return "[" + ", ".join(map(_flow, value)) + "]" if isinstance(value, list) else str(value)


def _counts(truth: Truth) -> str:
    if truth.data.get("refused"):
        return "refused: name the model in `models`"
    found = [f"{phase}: {', '.join(_epochs(truth, phase))}" for phase in ("train", "eval") if any(truth.epochs(phase))]
    return "; ".join(found) or "nothing is captured, exit code 1"


def _epochs(truth: Truth, phase: str) -> Iterator[str]:
    for number, steps in enumerate(truth.epochs(phase)):
        yield _steps(steps) + ("*" if number in truth.incomplete and phase == "train" else "")


def _steps(steps: list[int]) -> str:
    if set(steps) <= {1}:
        return str(len(steps))
    return f"1x{steps[0]}" if len(steps) == 1 else "+".join(f"({-each})" if each < 0 else str(each) for each in steps)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
