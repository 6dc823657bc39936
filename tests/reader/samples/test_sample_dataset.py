from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import probes
from probes.clock import SeriesKey
from probes.errors import MissingExtra, RaggedSeries, SeriesNotFound, StorageError, UsageError
from tests.reader.recorded import Recording

DEEP = SeriesKey("acts", "fc2", "output", "train")


def value_of(sample: int, epoch: int) -> list[float]:
    return [sample, 100.0 * epoch, -sample]


def made(directory: Path, epochs: int = 2, steps: int = 5, batch: int = 4, ids: bool = True) -> Path:
    """A run over samples 0 to 19 in another order in each epoch; the values say which sample and epoch they are of."""
    for epoch in range(epochs):
        recording = Recording(directory, epoch)
        order = np.random.default_rng(epoch).permutation(steps * batch)
        for step in range(steps):
            samples = order[step * batch : (step + 1) * batch].tolist()
            recording.take(np.array([value_of(sample, epoch) for sample in samples], "<f4"), step=step)
            recording.take(np.array(samples, "<f8").reshape(-1, 1, 1) * np.ones((1, 2, 2)), key=DEEP, step=step)
            if ids:
                recording.ids(step, samples)
        recording.sealed()
    return directory


def seen(items: Any) -> list[tuple[int, int]]:
    """Sample and epoch of each item, after its values were held against them."""
    found = []
    for item in items:
        assert item["acts/fc1:output"].tolist() == value_of(item["id"], item["epoch"])
        found.append((item["id"], item["epoch"]))
    return found


ALL = [(sample, epoch) for epoch in range(2) for sample in range(20)]


def test_every_row_is_an_item_with_its_id_and_its_place(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts")
    assert (len(dataset), dataset.names) == (40, ["acts/fc1:output", "acts/fc2:output"])
    assert sorted(seen(dataset), key=ALL.index) == ALL
    last = dataset[-1]
    assert (last["epoch"], last["step"], last["row"]) == (1, 4, 3)
    assert last["acts/fc2:output"].tolist() == [[last["id"]] * 2] * 2
    assert [item["id"] for item in dataset[:3]] == dataset.ids[:3].tolist()
    with pytest.raises(IndexError):
        dataset[40]


def test_items_of_a_sample_are_found_by_its_id(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts/fc1")
    assert seen(dataset[int(index)] for index in dataset.find(17)) == [(17, 0), (17, 1)]
    assert len(dataset.find([3, 4])) == 4
    assert len(probes.open(tmp_path).sel(epoch=1).dataset("acts/fc1").find(17)) == 1


@pytest.mark.parametrize("index", [1.9, "1", np.float64(1), None, torch.tensor(1.5)])
def test_an_index_that_is_not_an_integer_is_not_rounded(index: Any, tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path, epochs=1)).dataset("acts/fc1")
    for use in (lambda: dataset[index], lambda: dataset.__getitems__([index])):
        with pytest.raises(TypeError, match="integer"):
            use()
    assert dataset[np.int64(1)]["row"] == dataset[torch.tensor(1)]["row"] == dataset[1]["row"] == 1


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.torture)])
def test_workers_of_a_loader_give_every_item_once(tmp_path: Path, context: str) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts/fc1", labels={sample: sample % 2 for sample in range(20)})
    seen(dataset)  # files are open before the workers start
    loaders = [
        DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2, multiprocessing_context=context),
        DataLoader(dataset.stream(shuffle=3, buffer=2), batch_size=8, num_workers=2, multiprocessing_context=context),
    ]
    for loader in loaders:
        batches = list(loader)
        ids = [int(one) for batch in batches for one in batch["id"]]
        epochs = [int(one) for batch in batches for one in batch["epoch"]]
        assert sorted(zip(ids, epochs, strict=True), key=ALL.index) == ALL
        values = torch.cat([batch["acts/fc1:output"] for batch in batches])
        assert values.tolist() == [value_of(*pair) for pair in zip(ids, epochs, strict=True)]
        assert [int(one) for batch in batches for one in batch["label"]] == [one % 2 for one in ids]


def test_a_stream_is_shuffled_by_its_seed_and_epoch_alone(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts/fc1")
    plain = dataset.stream()
    assert isinstance(plain, IterableDataset)
    assert seen(plain) == seen(dataset)
    shuffled = dataset.stream(shuffle=0)
    first = seen(shuffled)
    assert seen(dataset.stream(shuffle=0)) == first != seen(dataset.stream(shuffle=1))
    assert sorted(first, key=ALL.index) == ALL
    shuffled.set_epoch(1)
    assert seen(shuffled) != first
    assert seen(pickle.loads(pickle.dumps(shuffled))) == seen(shuffled)


def test_a_split_has_no_sample_in_both_parts(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts/fc1")
    train, test = dataset.split(test=0.4, seed=1)
    assert sorted(seen(train) + seen(test), key=ALL.index) == ALL
    assert not {*train.ids.tolist()} & {*test.ids.tolist()}
    assert 0 < len(test) < 40
    assert seen(test.stream(shuffle=2)) != seen(test)
    assert sorted(seen(test.stream(shuffle=2))) == sorted(seen(test))
    with pytest.raises(UsageError, match="between 0 and 1"):
        dataset.split(test=1)


def test_tokens_are_items_where_two_axes_count_samples(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    for step, tokens in enumerate((3, 2)):
        recording.take(np.arange(2 * tokens * 4, dtype="<f4").reshape(2, tokens, 4) + 100 * step, step=step).ids(
            step, [f"a{step}", f"b{step}"]
        )
    recording.sealed()
    dataset = probes.open(tmp_path).dataset("acts", axes=2)
    assert [item["id"] for item in dataset] == ["a0"] * 3 + ["b0"] * 3 + ["a1"] * 2 + ["b1"] * 2
    assert [item["acts/fc1:output"][0] for item in dataset] == [*range(0, 24, 4), *range(100, 116, 4)]


def test_rows_without_ids_are_items_all_the_same(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path, ids=False)).dataset("acts/fc1")
    assert "id" not in dataset[0]
    with pytest.raises(SeriesNotFound, match="holds no sample ids; record them with"):
        _ = dataset.ids
    with pytest.raises(SeriesNotFound, match="holds no sample ids"):
        probes.open(tmp_path).dataset("acts/fc1", labels={})


def test_settings_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    run = probes.open(made(tmp_path / "a"))
    with pytest.raises(UsageError, match="19 samples have no label, such as the id"):
        run.dataset("acts/fc1", labels={"3": 0, 3: 1})
    with pytest.raises(UsageError, match="`axes`"):
        run.dataset("acts/fc1", axes=0)
    with pytest.raises(SeriesNotFound, match="no series matches"):
        run.dataset("nothing/*")
    Recording(tmp_path / "b").take(np.zeros((2, 3))).take(np.zeros((2, 3)), key=DEEP, step=1).sealed()
    with pytest.raises(RaggedSeries, match="were not captured in the same calls"):
        probes.open(tmp_path / "b").dataset("acts")
    Recording(tmp_path / "c").take(np.zeros((2, 3))).take(np.zeros((2, 4)), step=1).sealed()
    with pytest.raises(RaggedSeries, match="differ in shape"):
        probes.open(tmp_path / "c").dataset("acts")
    Recording(tmp_path / "d").take(np.zeros(())).sealed()
    with pytest.raises(RaggedSeries, match="no 1 leading axes"):
        probes.open(tmp_path / "d").dataset("acts")


def test_a_run_that_changed_meanwhile_is_noticed(tmp_path: Path) -> None:
    dataset = pickle.loads(pickle.dumps(probes.open(made(tmp_path, epochs=1)).dataset("acts/fc1")))
    made(tmp_path / "other", epochs=2)
    for file in (tmp_path / "other").iterdir():
        file.replace(tmp_path / file.name)
    with pytest.raises(StorageError, match="make it again with"):
        dataset[0]


def test_the_arrow_table_has_rows_as_lists_of_fixed_size(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts")
    table = dataset.arrow().read_all()
    assert table.column("id").to_pylist() == dataset.ids.tolist()
    assert [list(row) for row in table.column("acts/fc1:output").to_pylist()] == [item["acts/fc1:output"].tolist() for item in dataset]
    assert table.schema.field("acts/fc2:output").metadata == {b"shape": b"2x2"}
    assert table.schema.field("acts/fc2:output").type.list_size == 4


def test_the_table_of_hugging_face_has_the_same_rows(tmp_path: Path) -> None:
    dataset = probes.open(made(tmp_path)).dataset("acts")
    try:
        import datasets  # noqa: F401  # only whether it is installed
    except ImportError:
        with pytest.raises(MissingExtra, match=r"needs the package `datasets`; install it with: pip install \"torch-probes\[datasets\]\""):
            dataset.huggingface()
        return
    table = dataset.huggingface().with_format("numpy")
    assert [row["id"] for row in table] == dataset.ids.tolist()
    assert [row["acts/fc2:output"].tolist() for row in table] == [item["acts/fc2:output"].tolist() for item in dataset]
    streamed = list(dataset.huggingface(streaming=True))
    assert [row["acts/fc1:output"] for row in streamed] == [item["acts/fc1:output"].tolist() for item in dataset]
