from __future__ import annotations

import resource
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import probes.commands.fmt  # noqa: F401  # Python would write its bytecode under the limit of a test, and leave a part of it
from probes.cli import cli

WRITTEN = "probes: {acts: {modules: [a], hook: forward}}   # why\nversion:   1\n"
FORMATTED = "probes: {acts: {modules: [a], hook: forward}}   # why\nversion: 1\n"


def fmt(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["fmt", *words], input=given)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(WRITTEN, "utf-8")
    return path


def test_a_file_is_formatted_in_place(spec: Path) -> None:
    result = fmt(str(spec))
    assert (result.exit_code, result.stdout) == (0, f"{spec}: formatted\n")
    assert spec.read_text("utf-8") == FORMATTED
    again = fmt(str(spec))
    assert (again.exit_code, again.stdout) == (0, "")


def test_check_changes_nothing_and_shows_what_would_change(spec: Path) -> None:
    result = fmt("--check", str(spec))
    assert result.exit_code == 1
    assert "-version:   1" in result.stdout
    assert "+version: 1" in result.stdout
    assert spec.read_text("utf-8") == WRITTEN
    spec.write_text(FORMATTED, "utf-8")
    assert fmt("--check", str(spec)).exit_code == 0


def test_stdin_comes_back_on_stdout() -> None:
    result = fmt("-", given=WRITTEN)
    assert (result.exit_code, result.stdout) == (0, FORMATTED)
    assert fmt("--check", "-", given=WRITTEN).exit_code == 1


def test_a_file_that_is_not_yaml_is_unchanged_and_the_reason_is_printed(spec: Path) -> None:
    spec.write_text("version: [1\n", "utf-8")
    result = fmt(str(spec))
    assert result.exit_code == 2
    assert "error[not-yaml]" in result.stderr
    assert spec.read_text("utf-8") == "version: [1\n"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = fmt(str(tmp_path / "none.yaml"))
    assert result.exit_code == 3
    assert 'none.yaml" does not exist' in result.stderr


def test_every_file_is_formatted_and_every_problem_is_printed(spec: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("version: [1\n", "utf-8")
    (tmp_path / "folder.yaml").mkdir()
    result = fmt(*(str(tmp_path / name) for name in ("bad.yaml", "none.yaml", "folder.yaml", "spec.yaml")))
    assert (result.exit_code, result.stdout) == (2, f"{spec}: formatted\n")
    assert spec.read_text("utf-8") == FORMATTED
    assert "error[not-yaml]" in result.stderr
    assert 'none.yaml" does not exist' in result.stderr
    assert 'folder.yaml": it is not a regular file' in result.stderr


@pytest.mark.parametrize("written", [FORMATTED.replace("\n", "\r\n"), FORMATTED.rstrip("\n")])
def test_check_reports_files_of_which_only_the_ends_of_lines_differ(written: str, spec: Path) -> None:
    spec.write_bytes(written.encode())
    result = fmt("--check", str(spec))
    assert result.exit_code == 1
    assert "only the ends of lines differ" in result.stdout


def test_a_file_on_a_full_disk_stays_as_it_was(spec: Path) -> None:
    written = "version: 1\nprobes:\n a:\n  hook: forward\n  modules: [a]\n"
    spec.write_text(written, "utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(written), before[1]))  # the formatted file is longer
    try:
        result = fmt(str(spec))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert result.exit_code == 3
    assert f'cannot write "{spec}": File too large' in result.stderr
    assert spec.read_text("utf-8") == written


def test_a_file_stays_as_it_was_when_formatting_is_interrupted(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = "version: 1\nprobes:\n a:\n  hook: forward\n  modules: [a]\n"
    spec.write_text(written, "utf-8")

    class Interrupted(FileIO):
        calls = 0

        def write(self, content: Any) -> int:
            self.calls += 1
            if self.calls > 1:
                return super().write(content)
            super().write(bytes(content)[:40])
            raise KeyboardInterrupt

    opened = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", **more: Interrupted(path, mode) if mode == "r+b" else opened(path, mode, **more)
    )
    assert fmt(str(spec)).exit_code == 130
    assert spec.read_text("utf-8") == written


def test_nothing_is_written_through_a_link_and_a_file_that_is_not_a_spec_is_unchanged(tmp_path: Path) -> None:
    """A link of an unknown author may lead anywhere, and a text without a colon is YAML, too."""
    for name, text in {"real.yaml": WRITTEN, "passwd": "root:x:0:0\nada:x:1:1\n"}.items():
        (tmp_path / name).write_text(text, "utf-8")
        (tmp_path / f"{name}.link").symlink_to(tmp_path / name)
        assert "is a link" in fmt(str(tmp_path / f"{name}.link")).stderr
        assert (tmp_path / name).read_text("utf-8") == text
    assert fmt("--check", str(tmp_path / "real.yaml.link")).exit_code == 1
    assert "its top level is not a mapping" in fmt(str(tmp_path / "passwd")).stderr
    assert (tmp_path / "passwd").read_text("utf-8").startswith("root:x:0:0\nada")
