from __future__ import annotations

import sys
from pathlib import Path

import pytest

from probes.errors import MissingExtra
from probes.optional_package import import_optional


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_package_inside", "ModuleNotFoundError: No module named 'no_such_package_inside'"),
        ("raise TypeError('first line\\nsecond line')", "TypeError: first line"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
    ],
)
def test_a_package_whose_import_fails_is_not_called_missing(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_tracker.py").write_text(code, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra) as caught:
        import_optional("broken_tracker", "tracker", "the sink `tracker`")
    found = str(caught.value)
    assert found == f"the sink `tracker` needs the package `broken_tracker`; `broken_tracker` is installed, but its import fails: {reason}"
    assert "broken_tracker" not in sys.modules


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtra, match=r"needs the package `absent_tracker\.client`; install it with: pip install"):
        import_optional("absent_tracker.client", "tracker", "the sink `tracker`")
