import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from probes.script.import_hook import ImportHook


def test_the_callback_is_called_once_during_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arriving.py").write_text("number = 3")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    import_hook = ImportHook("arriving", lambda: seen.append(sys.modules["arriving"].number))
    import_hook.start()
    assert seen == []
    import arriving  # type: ignore[import-not-found]  # made above

    assert seen == [3]
    assert "exec_module" not in vars(arriving.__spec__.loader)
    assert import_hook not in sys.meta_path
    del sys.modules["arriving"]


def test_a_module_that_is_already_imported_is_reported_at_once() -> None:
    seen: list[int] = []
    ImportHook("sys", lambda: seen.append(1)).start()
    assert seen == [1]


def test_a_wait_can_be_cancelled() -> None:
    import_hook = ImportHook("arriving", lambda: None)
    import_hook.start()
    import_hook.stop()
    assert import_hook not in sys.meta_path
    import_hook.stop()


def test_a_program_that_only_looks_up_the_module_does_not_hide_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does transformers with torch, before it imports it."""
    (tmp_path / "arriving.py").write_text("number = 3")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []
    ImportHook("arriving", lambda: seen.append(1)).start()
    assert find_spec("arriving") is not None
    assert seen == []
    import arriving  # noqa: F401 - imported for what it sets off

    assert seen == [1]
    del sys.modules["arriving"]
