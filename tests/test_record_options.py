from __future__ import annotations

import pytest
from pydantic import ValidationError

from probes.record_options import RecordOptions
from probes.testing import check_component


@pytest.mark.parametrize("keys", [{}, {"compression": "zstd"}, {"seal": {"steps": 500}}], ids=str)
def test_the_options_meet_the_contract_of_components(keys: dict[str, object]) -> None:
    check_component(RecordOptions.model_validate({"kind": "hdf5", **keys}))


@pytest.mark.parametrize("keys", [{"compression": "lzma"}, {"seal": {"steps": 0}}, {"seal": {}}, {"seal": 500}, {"path": "x.h5"}], ids=str)
def test_an_unknown_option_is_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RecordOptions.model_validate({"kind": "hdf5", **keys})


def test_by_default_nothing_is_compressed_and_an_epoch_is_one_file() -> None:
    assert (RecordOptions().compression, RecordOptions().seal) == ("none", None)
