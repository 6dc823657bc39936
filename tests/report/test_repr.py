"""Everything public that a session of Python or a notebook shows: one line, and HTML in which names of files stay text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

import probes

SPEC = {
    "version": 1,
    "probes": {
        "acts": {"hook": "forward", "modules": ["*"], "transforms": [{"kind": "stats"}]},
        "raw": {"modules": ["0"], "values": ["output"]},
    },
    "rules": {"large": {"probe": "acts", "above": 0}},
}


def trained(path: Path, seed: int) -> Any:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with probes.attach(model, SPEC, out=path) as run:
        for _ in run.epochs(1):
            for x in run.steps([torch.randn(3, 4)] * 2, ids=lambda batch: [1, 2, 3]):
                model(x)
    return run, model


def test_all_public_objects_have_a_repr_of_one_line_and_are_shown_by_a_notebook(tmp_path: Path, capsys: Any) -> None:
    run, model = trained(tmp_path / "a", 0)
    trained(tmp_path / "b", 1)
    read, runs = probes.open(tmp_path / "a"), probes.open_all(tmp_path)
    verdict, difference = probes.verify(tmp_path / "a"), probes.diff(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "epoch-0000.h5").write_bytes(b"no file of HDF5")
    broken = probes.verify(tmp_path / "c" / "epoch-0000.h5")
    look = probes.look(model, {**SPEC, "rules": {}}, torch.randn(3, 4))
    shown = [
        *(run, run.summary(), run.plan, probes.resolve(SPEC, model), probes.load(SPEC), probes.load(SPEC).spec, look, look.series),
        *(read, read.series, read.series[0], read.series[0][0], read["raw", "0"][0], read.match("acts"), read.verdicts[0]),
        *(runs, runs["raw", "0"], read["raw", "0"].by_rank(), read.dataset("raw/0"), read.dataset("raw/0").split(test=0.4, seed=0)[0]),
        *(verdict, verdict.files[0], broken, *broken.findings, difference, difference.first, difference.series[0]),
    ]
    for one in shown:
        text = repr(one)
        assert "\n" not in text, text
        assert " at 0x" not in text, text
        assert len(text) < 200, text
        page = one._repr_html_()
        assert page.startswith(("<table>", "<pre>")), text
        assert " at 0x" not in page, text
    capsys.readouterr()
