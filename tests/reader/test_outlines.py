"""What `run.outlines` states without opening a file, against the series themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import probes
from probes.capture_file.read import SealedFile
from probes.clock import SeriesKey
from probes.errors import UsageError
from probes.proof.verify import verify
from probes.reader.run import RunReader
from tests.proof.forger import earlier
from tests.reader.recorded import Recording


def key(target: str, leaf: str = "output", phase: str = "train") -> SeriesKey:
    return SeriesKey("p", target, leaf, phase)


def odd(directory: Path) -> Path:
    """Series of every form, over three epochs and two attempts at one of them."""
    for epoch in range(3):
        one = Recording(directory, epoch)
        for step in range(2 + epoch):
            one.take(np.zeros((2, 3), "<f4"), key=key("stacked"), step=step, dims=("batch", "feature"))
            one.take(np.zeros((2 + step, 3), "<f4"), key=key("rows"), step=step, dims=("batch", "feature"))
            one.take(np.zeros((1,) * (1 + step % 2), "<f4"), key=key("ragged"), step=step)
            one.take(np.zeros((), "<f8"), key=key("scalar"), step=step)
            one.take(np.zeros((0, 4), "<i2"), key=key("empty"), step=step)
            one.take(np.zeros((4, 2), "<f4"), key=key("complex"), dtype="complex64", shape=(4,), step=step)
            one.take(np.zeros(3, ("<f4", "<f2")[step % 2]), key=key("two", "output.0"), step=step)
            one.take(np.zeros(epoch + 1), key=key("grows", phase="eval"), step=step)
            one.take(np.zeros(1), key=key("", "loss_scale"), step=step)
        if epoch:
            one.take(np.zeros(3), key=key("late"), step=5, epoch=epoch - 1)
        one.sealed(complete=epoch != 2)
    Recording(directory, 2, attempt=2).take(np.zeros(7, "u1"), key=key("stacked"), step=1).sealed()
    Recording(directory, 3).take(np.zeros(2, "i8"), key=key("left")).left()
    return directory


def of_series(run: RunReader) -> list[tuple[Any, ...]]:
    """The same out of the files: each series read, one dtype at a time."""
    found = []
    for every in run.series:
        for one in every.by_dtype():
            signature, epochs = one.signature, tuple(sorted(set(one.clocks["epoch"].tolist())))
            found.append((one.key, one.dtype, len(one), signature.shape, signature.dims, one.nbytes, epochs))
    return found


@pytest.mark.parametrize("select", [lambda run: run, lambda run: run.sel(epoch=[0, 2]), lambda run: run.sel(phase="eval", dtype="float64")])
def test_outlines_agree_with_the_series(tmp_path: Path, select: Callable[[RunReader], RunReader]) -> None:
    run = select(probes.open(odd(tmp_path)))
    assert [tuple(one) for one in run.outlines] == of_series(run)


def test_a_ledger_of_an_earlier_release_lists_the_same_as_its_files(tmp_path: Path) -> None:
    listed = probes.open(odd(tmp_path)).outlines
    assert "ledger-edited" not in {one.code for one in verify(tmp_path).findings}
    earlier(tmp_path)
    assert probes.open(tmp_path).outlines == listed


def test_a_sealed_file_without_remarks_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in range(3):
        Recording(tmp_path, epoch).take(np.zeros(3)).sealed()
    opened: list[Path] = []
    real = SealedFile.__init__
    monkeypatch.setattr(SealedFile, "__init__", lambda self, path: (opened.append(path), real(self, path))[1])
    run = probes.open(tmp_path)
    assert (len(run.outlines), run.missing, run.verdicts, run.events, opened) == (1, [], [], [], [])
    assert len(run["acts", "fc1"].numpy()) == len(opened) == 3


def test_steps_have_no_outlines(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of whole files"):
        _ = probes.open(odd(tmp_path)).sel(step=1).outlines
