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
    assert "acts forward h.1.attn output Linear ? ? one hook with `late`" in lines
    assert "late forward h.1.attn output Linear float16[row, feature] ? one hook with `acts`" in lines


def test_what_is_known_before_the_first_step_is_told_and_the_rest_is_called_unknown(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC.replace('"h", ', ""))
    lines = squeezed(invoke(plan, "--model", "model:Net", "probe.yaml").out)
    assert "grads tensor, final fc1.weight grad Linear float32[2, 4] 32 B also `fc2`" in lines
    assert "inputs backward fc1 grad_input Linear ? ? not neutral; also `fc2`" in lines
    assert lines[-1].endswith("32 B for 1 of them in a step where all are due, the rest unknown until the first step")


def test_problems_end_with_code_two_and_as_json_too(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", SPEC)
    said = invoke(plan, "--model", "model:Net", "probe.yaml")
    assert said.code == 2
    assert "error[module-without-forward]" in said.err
    said = invoke(plan, "--model", "model:Net", "probe.yaml", "--json")
    assert said.code == 2
    assert [problem["code"] for problem in json.loads(said.out)["problems"]] == ["module-without-forward"]


def test_containers_that_a_pattern_matches_are_listed_as_left_out(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", 'version: 1\nprobes:\n  acts: {hook: forward, modules: ["*"]}\n')
    assert "acts: left out, never fires: `h`" in invoke(plan, "--model", "model:Net", "probe.yaml").out


def test_json_has_every_binding_and_the_cost_of_a_step(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  grads: {hook: tensor, tensors: [fc1.weight, fc1.bias]}\n")
    found = json.loads(invoke(plan, "--model", "model:Net", "probe.yaml", "--json").out)
    assert [binding["target"] for binding in found["bindings"]] == ["fc1.weight", "fc1.bias"]
    assert found["bytes_per_step"] == 40
    assert found["captures_per_step"] == 2


def test_a_set_changes_the_spec(invoke: Invoke, written: Written) -> None:
    written("probe.yaml", "version: 1\nprobes:\n  grads: {hook: tensor, tensors: [fc1.weight]}\n")
    assert "fc1.bias" in invoke(plan, "--model", "model:Net", "--set", "probes.grads.tensors=[fc1.bias]", "probe.yaml").out
