from __future__ import annotations

import pytest
from pydantic import ValidationError

from probes.sinks.hdf5 import Hdf5
from probes.testing import check_component


@pytest.mark.parametrize("keys", [{}, {"compression": "zstd"}, {"seal": {"steps": 500}}], ids=str)
def test_the_sink_keeps_to_what_every_component_does(keys: dict[str, object]) -> None:
    check_component(Hdf5.model_validate({"kind": "hdf5", **keys}))


@pytest.mark.parametrize("keys", [{"compression": "lzma"}, {"seal": {"steps": 0}}, {"seal": {}}, {"seal": 500}, {"path": "x.h5"}], ids=str)
def test_what_the_sink_cannot_do_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Hdf5.model_validate({"kind": "hdf5", **keys})


def test_nothing_is_compressed_or_cut_unless_it_is_said() -> None:
    assert (Hdf5().compression, Hdf5().seal) == ("none", None)
