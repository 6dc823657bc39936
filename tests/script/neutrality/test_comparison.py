from typing import Any

from probes.script.neutrality.comparison import first_difference


def step(number: int, **changed: Any) -> dict[str, Any]:
    return {"event": "step", "number": number, "optimizer": "SGD", "gradients": "a", "weights": "b", "generators": {}, **changed}


def end(**changed: Any) -> dict[str, Any]:
    model = {"class": "Net", "state": {"fc.weight": "a", "fc.bias": "b"}, "hooks": 0, **changed}
    return {"event": "end", "code": 0, "models": [model], "generators": {}}


def test_equal_records_do_not_differ() -> None:
    assert first_difference([step(0), end()], [step(0), end()]) == ""


def test_the_first_step_that_differs_is_named_with_its_differences() -> None:
    assert (
        first_difference([step(0), step(1)], [step(0), step(1, gradients="x", weights="y")]) == "optimizer step 1 (SGD): gradients, weights"
    )


def test_a_missing_event_is_named() -> None:
    assert first_difference([step(0), end()], [end()]) == "optimizer step 0 (SGD) without probes, the end with them"
    assert first_difference([step(0)], []) == "optimizer step 0 (SGD) without probes, nothing more with them"


def test_a_changed_weight_is_named() -> None:
    changed = end(state={"fc.weight": "a", "fc.bias": "x"})
    assert first_difference([end()], [changed]) == "the end: 1 of 2 weights and buffers of Net, `fc.bias` first"


def test_a_hook_that_remains_is_a_difference() -> None:
    assert first_difference([end()], [end(hooks=2)]) == "the end: Net carries 2 hooks instead of 0"
    assert first_difference([end()], [end(**{"class": "Other"})]) == "the end: other models"
