from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture import shim
from tests.torture.nursery import Nurseries
from tests.torture.report import Effort

SHARE = 0.002


@pytest.fixture(scope="session")
def effort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Effort]:
    if shim.compiler() is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("torture")
    with Nurseries(folder, shim.build(folder), 2) as nurseries:
        yield Effort(0, SHARE, folder, nurseries)
