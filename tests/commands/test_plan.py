import json

from probes.commands.plan import plan
from tests.commands.conftest import Invoke, Written, squeezed

SPEC = """
version: 1
probes:
  acts: {hook: forward, modules: ["h", "h.1.*"]}
  late: {hook: forward, modules: [h.1.attn], dims: [row, feature], transforms: [{kind: cast, dtype: float16}]}
  grads: {hook: tensor, tensors: [fc1.weight], stage: final}
  inputs: {modules: [fc1], values: [grad_input]}
"""


def test_a_plan_has_a_row_for_every_binding(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC.replace('"h", "h.1.*"', '"h.1.**"'))
    said = invoke(plan, "--model", "model:Net", "probe.yaml")
    assert said.code == 0
    lines = squeezed(said.out)
    assert lines[0] == "probe hook target value class stored bytes notes"
    assert "acts forward h.1.attn output Linear ? ? shares its hook with `late`" in lines
    assert "late forward h.1.attn output Linear float16[row, feature] ? shares its hook with `acts`" in lines


def test_facts_known_before_the_first_step_are_printed_and_others_are_unknown(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC.replace('"h", ', ""))
    lines = squeezed(invoke(plan, "--model", "model:Net", "probe.yaml").out)
    assert "grads tensor, final fc1.weight grad Linear float32[2, 4] 32 B also `fc2`" in lines
    assert "inputs backward fc1 grad_input Linear ? ? not neutral; also `fc2`" in lines
    assert lines[-1].endswith(
        "32 B for 1 of them in a step where all probes are due, the rest unknown before the first step; `--watch SCRIPT` measures one pass"
    )


def test_problems_end_with_code_two_and_as_json_too(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC)
    said = invoke(plan, "--model", "model:Net", "probe.yaml")
    assert said.code == 2
    assert "error[module-without-forward]" in said.err
    said = invoke(plan, "--model", "model:Net", "probe.yaml", "--json")
    assert said.code == 2
    assert [problem["code"] for problem in json.loads(said.out)["problems"]] == ["module-without-forward"]


def test_problems_of_the_spec_alone_are_json_too(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  acts: {hok: forward, modules: [fc1]}\n")
    said = invoke(plan, "--model", "model:Net", "probe.yaml", "--json")
    assert (said.code, said.err) == (2, "")
    assert [problem["code"] for problem in json.loads(said.out)["problems"]] == ["unknown-key"]


def test_output_of_the_callable_of_a_model_is_not_in_the_output(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n")
    written("noisy.py", "from model import Net\nprint('imported')\ndef made():\n    print('made')\n    return Net()\n")
    said = invoke(plan, "--model", "noisy.py:made", "probe.yaml", "--json")
    assert [binding["target"] for binding in json.loads(said.out)["bindings"]] == ["fc1"]
    assert said.err == "imported\nmade\n"


def test_a_script_that_exits_while_it_is_imported_for_its_model_is_an_error(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  acts: {hook: forward, modules: [fc1]}\n")
    written("ends.py", "import sys\nfrom model import Net\nsys.exit(0)\n")
    said = invoke(plan, "--model", "ends.py:Net", "probe.yaml")
    assert said.code == 2
    assert "importing 'ends.py' failed: SystemExit: 0 (" in said.err


def test_containers_that_a_pattern_matches_are_listed_as_left_out(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", 'version: 1\nprobes:\n  acts: {hook: forward, modules: ["*"]}\n')
    assert "acts: left out because they are never called: `h`" in invoke(plan, "--model", "model:Net", "probe.yaml").out


def test_json_has_every_binding_and_the_cost_of_a_step(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  grads: {hook: tensor, tensors: [fc1.weight, fc1.bias]}\n")
    found = json.loads(invoke(plan, "--model", "model:Net", "probe.yaml", "--json").out)
    assert [binding["target"] for binding in found["bindings"]] == ["fc1.weight", "fc1.bias"]
    assert found["bytes_per_step"] == 40
    assert found["captures_per_step"] == 2


def test_a_set_changes_the_spec(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  grads: {hook: tensor, tensors: [fc1.weight]}\n")
    assert "fc1.bias" in invoke(plan, "--model", "model:Net", "--set", "probes.grads.tensors=[fc1.bias]", "probe.yaml").out


SCRIPT = """
import sys
import torch
from model import Net

print("begins", *sys.argv[1:])
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(1000):
    net(torch.ones(5, 4)).sum().backward()
    optimizer.step()
    print("step", step)
"""


def test_one_pass_of_a_script_gives_every_shape(invoke: Invoke, written: Written) -> None:
    written("train.py", SCRIPT)
    written("probe.yaml", 'version: 1\nprobes:\n  acts: {modules: ["h.*.mlp", fc1], values: [input, output, grad_output]}\n')
    said = invoke(plan, "probe.yaml", "--watch", "train.py", "--all", "--lr", "0.1")
    assert said.code == 0
    assert squeezed(said.out) == [
        "probe hook target value class stored bytes notes",
        "acts pre-forward h.{0..2}.mlp input.input 3 x Sequential float32[5, 4] 3 x 80 B",
        "acts forward h.{0..2}.mlp output 3 x Sequential float32[5, 4] 3 x 80 B",
        "acts backward h.{0..2}.mlp grad_output 3 x Sequential float32[5, 4] 3 x 80 B",
        "acts pre-forward fc1 input.input Linear float32[5, 4] 80 B also `fc2`",
        "acts forward fc1 output Linear float32[5, 2] 40 B also `fc2`",
        "acts backward fc1 grad_output Linear float32[5, 2] 40 B also `fc2`",
        "",
        "1 probe, 12 captures per call of the model; 880 B in a step where all probes are due",
    ]
    assert said.err.splitlines() == ["begins --all --lr 0.1"]  # it ends before the first optimizer step, and our options end with `--watch`


def test_problems_that_a_watched_pass_shows_are_reported(invoke: Invoke, written: Written) -> None:
    written("train.py", SCRIPT)
    written(
        "probe.yaml",
        """
        version: 1
        probes:
          named: {hook: forward, modules: [fc1], values: [output.logits]}
          axes: {hook: forward, modules: [fc1], dims: [batch, row, column]}
          cut: {hook: forward, modules: [fc1], transforms: [{kind: reduce, op: mean, dims: [2]}]}
        """,
    )
    lines = squeezed(invoke(plan, "probe.yaml", "--watch", "train.py").out)
    assert lines[1].startswith("named forward fc1 output.logits Linear ? ? `output.logits` has no tensor; the call has `output`;")
    assert lines[2].startswith("axes forward fc1 output Linear ? ? `dims` names 3 axes, but the value is `float32[5, 2]`;")
    assert lines[3].startswith(
        "cut forward fc1 output Linear ? ? transform `reduce` does not fit: axis 2 is out of range for a value with 2 axes;"
    )


def test_the_plan_explains_why_a_module_is_not_matched(invoke: Invoke, written: Written) -> None:
    written(
        "probe.yaml",
        """
        version: 1
        probes:
          levels: {hook: forward, modules: ["*.?.attn", "h.1.attn"]}
          names: {hook: forward, modules: ["h.{1..2}.mlp.*"]}
          kinds: {hook: forward, modules: ["**"], types: [ReLU]}
          left: {hook: forward, modules: ["h.**"], exclude: ["h.0.**"]}
          there: {hook: forward, modules: ["**"]}
          weights: {tensors: [fc1.weight], values: [data]}
          whole: {hook: forward, modules: [""]}
          loss: {values: [loop.loss]}
        """,
    )
    said = invoke(plan, "probe.yaml", "--model", "model:Net", "--why", "h.0.mlp.0")
    assert said.code == 0
    assert said.out.splitlines() == [
        "levels: no: `*.?.attn` does not match: it has 3 levels, the path has 4; `**` matches any number of levels; "
        "`h.1.attn` does not match: it has 3 levels, the path has 4; `**` matches any number of levels",
        "names: no: `h.{1..2}.mlp.*` does not match: level 2 of the path is `0`, the glob has `{1..2}` there",
        "kinds: no: `**` matches, but its classes are `Linear`, and `types` selects `ReLU`",
        "left: no: `h.**` matches, but `exclude: h.0.**` removes it",
        "there: yes: output",
        "weights: no: the probe has `tensors`, and none of them belongs to this module",
        "whole: no: the root does not match: it has 0 levels, the path has 4; `**` matches any number of levels",
        "loss: no: its values are those of the training loop, which belong to no module",
    ]
    assert "did you mean `h.0.mlp.0`?" in invoke(plan, "probe.yaml", "--model", "model:Net", "--why", "h.0.mlpp.0").err


def test_captures_that_wait_for_a_trigger_are_counted_and_refused_if_a_watched_pass_shows_too_many(
    invoke: Invoke, written: Written
) -> None:
    written("train.py", SCRIPT)
    text = "version: 1\nprobes: {acts: {hook: forward, modules: [fc1], when: {trigger: {kind: nonfinite, before: 99}}}}\n"
    written("probe.yaml", text)
    said = invoke(plan, "probe.yaml", "--watch", "train.py")
    assert said.out.splitlines()[-1] == (
        "nothing is written before a trigger fires; until then 3.9 KiB of 64.0 MiB (`limits.buffer_bytes`) are kept in memory"
    )
    written("probe.yaml", text + "limits: {buffer_bytes: 2000}\n")
    said = invoke(plan, "probe.yaml", "--watch", "train.py")
    assert said.code == 2
    assert "write `before: 49`, or raise `limits.buffer_bytes`" in said.err


ATTENTION = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.attn(x, x, x, need_weights=False)[0])

net = Block()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.ones(5, 2, 4)).sum().backward()
    optimizer.step()
"""


def test_a_value_that_no_call_has_is_refused_where_the_script_is_watched(invoke: Invoke, written: Written) -> None:
    written("train.py", ATTENTION)
    for target in ("attn", "att*"):
        written("probe.yaml", f"version: 1\nprobes: {{p: {{modules: [{target}], values: [output.1]}}}}\n")
        said = invoke(plan, "probe.yaml", "--watch", "train.py")
        assert said.code == 2
        assert "probe `p`: `output.1` of `attn` cannot be captured: `output.1` has no tensor; the call has `output.0`" in said.err
    written("probe.yaml", "version: 1\nprobes: {p: {modules: ['**'], values: [output]}}\n")
    assert invoke(plan, "probe.yaml", "--watch", "train.py").code == 0


BOXED = """
import torch
from torch import nn

class Box:
    def __init__(self, t): self.t = t

class Wrap(nn.Module):
    def __init__(self): super().__init__(); self.linear = nn.Linear(4, 4)
    def forward(self, x): return Box(self.linear(x))

class Use(Wrap):
    def forward(self, box, more): return self.linear(box.t) + more["m"]

class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = Wrap(), Use()
    def forward(self, x): return self.b(self.a(x), {"m": x})

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.ones(2, 4, requires_grad=True)).sum().backward()
    optimizer.step()
"""


def test_attributes_of_any_class_are_found_by_watching_and_an_ambiguous_gradient_is_refused(invoke: Invoke, written: Written) -> None:
    written("train.py", BOXED)
    values = "[input.box.t, grad_input_total.box.t, grad_input.more]"
    written("probe.yaml", f"version: 1\nprobes: {{p: {{modules: [a], values: [output.t]}}, q: {{modules: [b], values: {values}}}}}\n")
    assert invoke(plan, "probe.yaml", "--watch", "train.py").code == 0
    written("probe.yaml", "version: 1\nprobes: {p: {modules: [b], values: [input.box.t, grad_input.box.t]}}\n")
    said = invoke(plan, "probe.yaml", "--watch", "train.py")
    assert said.code == 2
    assert "`grad_input.box.t` of `b` cannot be captured: its container cannot be rebuilt" in said.err
    assert "input.box.t` of `b` cannot" not in said.err.replace("grad_input", "")
    written("probe.yaml", "version: 1\nprobes: {p: {modules: [b], values: [input.box]}}\n")
    assert "`input.box` has no tensor" in invoke(plan, "probe.yaml", "--watch", "train.py").err


def test_a_command_without_a_model_is_refused(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC)
    said = invoke(plan, "probe.yaml")
    assert said.code == 2
    assert "`--model PKG:CALLABLE`, or `--watch SCRIPT [ARGS]...` at the end" in said.err


def test_a_script_that_fails_before_its_model_is_called_shows_why(invoke: Invoke, written: Written) -> None:
    written("train.py", "import torch\nraise SystemExit(7)\n")
    written("probe.yaml", "version: 1\nprobes: {acts: {hook: forward, modules: [fc1]}}\n")
    assert invoke(plan, "probe.yaml", "--watch", "train.py").code == 7
    written("train.py", "import torch\n")
    assert "the program called no model" in invoke(plan, "probe.yaml", "--watch", "train.py").err


def test_a_comparison_is_noted_in_the_plan_and_its_copies_are_counted(invoke: Invoke, written: Written) -> None:
    written(
        "probe.yaml",
        """
        version: 1
        probes:
          moved: {hook: tensor, tensors: [fc1.weight], values: [data], against: {step: first}, transforms: [{kind: relative_error}]}
          near: {hook: forward, modules: [fc1], against: {series: acts}, transforms: [{kind: cosine}]}
          acts: {hook: forward, modules: [h.1.attn], where: {loop: loss, above: 1}}
        """,
    )
    lines = squeezed(invoke(plan, "--model", "model:Net", "probe.yaml").out)
    assert "moved tensor fc1.weight data Linear float32[] 4 B also `fc2`; against step first" in lines
    assert "near forward fc1 output Linear unknown[] ? also `fc2`; against series acts/h.1.attn:output" in lines
    assert lines[-3:] == [
        "1 value compared with another step: a copy of each is kept in memory",
        "1 value compared with another series: copies are kept in memory until the step ends",
        "1 value kept in memory until a number elsewhere decides, at most until the step ends",
    ]
