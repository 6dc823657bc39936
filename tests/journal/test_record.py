from __future__ import annotations

from typing import Any

import pytest

from probes.journal.record import annex_fault, descriptor_fault, end_fault, head_fault

DESCRIPTOR = {
    "id": 0,
    "key": {"probe": "acts", "target": "fc1", "leaf": "output", "phase": "train"},
    "dtype": "float32",
    "shape": [2, 3],
    "dims": ["image", "channel"],
    "coords": {"channel": ["a", "b", "c"]},
    "attrs": {"hook": "forward"},
}


def test_records_of_a_writer_are_valid() -> None:
    assert head_fault({"epoch": 3, "attempt": 2, "rank": 0, "segment": None, "manifest": {}, "global_step_start": {"train": 9}}) == ""
    assert descriptor_fault(DESCRIPTOR) == descriptor_fault(DESCRIPTOR | {"dims": None, "epoch": 2}) == ""
    assert end_fault({"complete": False, "reason": "it was stopped", "closing": {}}) == ""
    assert annex_fault({"ids": [3, 4, "a", 1 << 70], "gaps": [["acts", "fc1", "output", "train", "limit", 2]], "free": None}) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": None},
        {"epoch": -1},
        {"epoch": True},
        {"epoch": 1 << 32},
        {"attempt": "\0"},
        {"attempt": 0},
        {"segment": []},
        {"global_step_start": {"train": -1}},
        {"global_step_start": [1]},
        {"manifest": "x"},
        {"spec": 3},
        {"run_id": None},
        {"run_id": "r\0"},
        {"spec": "version: 1\0"},
    ],
)
def test_a_head_that_no_writer_writes_is_named(wrong: dict[str, Any]) -> None:
    assert "HEAD" in head_fault({"epoch": 0} | wrong) or "record" in head_fault({"epoch": 0} | wrong)


def test_a_head_without_an_epoch_is_named() -> None:
    assert head_fault({}) == "a HEAD whose epoch is None"


@pytest.mark.parametrize(
    "wrong",
    [
        {"dims": ["image"]},
        {"dims": ["image", "."]},
        {"dims": ["image", "a\0b"]},
        {"key": {"probe": "acts", "target": "fc1\0", "leaf": "output", "phase": "train"}},
        {"coords": {"channel": ["a\0"]}},
        {"attrs": {"hook": "forward\0"}},
        {"attrs": {"hook": ["forward", "\0"]}},
        {"attrs": {"ho\0ok": 1}},
        {"dims": 3},
        {"coords": {"channel": [None]}},
        {"coords": [1]},
        {"attrs": [1]},
        {"attrs": None, "epoch": -1},
        {"shape": [1 << 62]},
        {"key": {"probe": "acts"}},
        {"dtype": ["float32"]},
    ],
)
def test_a_descriptor_that_no_writer_writes_is_named(wrong: dict[str, Any]) -> None:
    assert descriptor_fault(DESCRIPTOR | wrong)


def test_an_end_and_an_annex_that_no_writer_writes_are_named() -> None:
    assert end_fault({"complete": 1})
    assert end_fault({"complete": True, "closing": [1]})
    assert end_fault({"reason": 3})
    assert annex_fault({"ids": [1, None]})
    assert annex_fault({"gaps": [["acts"]]})
