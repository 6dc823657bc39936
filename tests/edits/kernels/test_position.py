from __future__ import annotations

import pytest
import torch

from probes.edits.kernels.position import EditedPart, put, take
from probes.signature import Signature, SignatureError

NAMED = Signature("float32", (2, 3), ("batch", "token"))


def test_positions_become_an_index() -> None:
    assert EditedPart({"token": 1}, NAMED, {}).plain == [slice(None), 1]
    assert EditedPart(None, NAMED, {}).is_whole


def test_an_axis_without_a_name_is_refused() -> None:
    with pytest.raises(SignatureError, match="axes of the value have no names"):
        EditedPart({"token": 1}, Signature("float32", (2, 3)), {})


def test_a_position_outside_the_value_is_refused() -> None:
    value = torch.zeros(2, 3)
    with pytest.raises(SignatureError, match="has no such position"):
        take(value, EditedPart({"token": 3}, NAMED, {}))
    with pytest.raises(SignatureError, match="does not fit"):
        put(value, EditedPart({"token": 3}, NAMED, {}), torch.ones(2))
