from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import probes
from probes.cli import VERBS, cli, verbs
from probes.commands.rendering.failure import answer
from probes.errors import FileRefused, MissingExtra, Problem, SpecError, StorageError, UsageError

COMMANDS = Path(probes.__file__).parent / "commands"


def invoke(*words: str, **options: object) -> Result:
    return CliRunner().invoke(cli, list(words), **options)  # type: ignore[arg-type]  # passed on


def defined_verbs() -> set[str]:
    """The names of the functions under `@click.command()`, by module."""
    found = set()
    for path in COMMANDS.glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any("click.command" in ast.unparse(one) for one in node.decorator_list):
                found.add(f"probes.commands.{path.stem}:{node.name}")
    return found


def test_every_command_is_in_the_table_once() -> None:
    assert sorted(verb.place for verb in verbs().values()) == sorted(defined_verbs())


def test_help_shows_every_verb_in_its_group() -> None:
    text = invoke("--help").output
    assert all(f"{title}:" in text for title in VERBS)
    assert all(verb.about in text for verb in verbs().values()), "a description is too long for one line"


@pytest.mark.parametrize("name", verbs())
def test_every_verb_has_help(name: str) -> None:
    module, _, function = verbs()[name].place.partition(":")
    assert isinstance(getattr(import_module(module), function), click.Command)
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_help_of_the_group_imports_no_verb() -> None:
    code = "import sys; from probes.cli import cli; cli(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert [name for name in modules if name.startswith("probes.commands.rendering.")] == ["probes.commands.rendering.failure"]
    assert not [name for name in modules if name.startswith("probes.commands.") and not name.startswith("probes.commands.rendering")]


def test_a_mistyped_verb_gets_the_nearest() -> None:
    result = invoke("vrify")
    assert result.exit_code == 2
    assert "`vrify` is not a verb; did you mean `verify`?" in result.output


def test_a_verb_like_no_other_points_to_the_list() -> None:
    assert "`probes --help` lists them" in invoke("zzzz").output


def test_the_version_is_printed() -> None:
    result = invoke("--version")
    assert result.output == f"probes {probes.__version__}\n"


def test_the_module_runs_like_the_script() -> None:
    done = subprocess.run([sys.executable, "-m", "probes", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"probes {probes.__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError([Problem("null", "no value")]), 2),
        (UsageError("not so"), 2),
        (FileRefused("truncated", "too short"), 1),
        (StorageError("disk full"), 3),
        (MissingExtra("needs a package"), 3),
        (PermissionError(13, "Permission denied", "runs"), 3),
        (click.FileError("runs", "no"), 3),
        (KeyError("x"), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_error_has_its_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(error) == code
    printed = capsys.readouterr()
    assert printed.err.startswith("error")
    assert not printed.out


def test_a_bug_is_reported_in_few_lines_with_versions(capsys: pytest.CaptureFixture[str]) -> None:
    answer(ZeroDivisionError("division by zero"))
    text = capsys.readouterr().err
    assert "error[bug]: ZeroDivisionError: division by zero" in text
    assert "torch " in text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 4


def test_too_little_memory_is_an_error_of_the_environment_and_not_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(MemoryError("Unable to allocate 8.00 GiB")) == 3
    assert answer(MemoryError()) == 3
    assert capsys.readouterr().err.splitlines() == ["error: not enough memory: Unable to allocate 8.00 GiB", "error: not enough memory"]


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Traceback" in invoke("--debug", "explain", "no-such-code").output
    monkeypatch.setenv("PROBES_DEBUG", "1")
    assert "Traceback" in invoke("explain", "no-such-code").output


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("probes.commands.explain.listing", interrupt)
    assert invoke("explain").exit_code == 130


@pytest.mark.parametrize(
    ("environment", "words", "coloured"),
    [
        ({}, (), False),
        ({}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": "0"}, (), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, ("--color", "never"), False),
    ],
)
def test_color_follows_the_option_and_then_the_environment(
    environment: dict[str, str], words: tuple[str, ...], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    result = invoke(*words, "explain", "null", env=environment)
    assert ("\x1b[" in result.output) == coloured


def test_completion_offers_verbs_without_importing_them() -> None:
    from click.shell_completion import ShellComplete

    offered = ShellComplete(cli, {}, "probes", "_PROBES_COMPLETE").get_completions([], "re")
    assert {item.value for item in offered} == {"recover", "replay", "report"}


@pytest.mark.parametrize("words", [["explain"], ["--help"], ["--version"], ["explain", "--help"]])
def test_a_closed_reader_of_stdout_gives_no_message(words: list[str]) -> None:
    """As for `probes explain | head -1`, where the pipe is closed at any time."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-m", "probes", *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["explain", "--help", "--version", "explain --help"])
def test_a_full_disk_under_stdout_is_an_error_of_the_environment(words: str) -> None:
    command = f"exec {sys.executable} -m probes {words} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.stderr, done.returncode) == ("error: [Errno 28] No space left on device\n", 3)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_streams_that_are_closed_cost_only_what_would_be_printed_there(tmp_path: Path, closed: str) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("version: 1\nname: a\nprobes: {p: {hook: forward, modules: [fc]}}\n", encoding="utf-8")
    for words, code in ((f"check {spec}", 0), ("check none.yaml", 3), ("--version", 0)):
        command = f"exec {sys.executable} -m probes {words} {closed}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert "bug" not in done.stderr


def test_a_working_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    spec, script = tmp_path / "spec.yaml", tmp_path / "train.py"
    spec.write_text("version: 1\nname: a\nprobes: {p: {hook: forward, modules: [fc]}}\n", encoding="utf-8")
    script.touch()
    command = f"mkdir gone; cd gone; rmdir ../gone; exec {sys.executable} -P -m probes run {spec} {script}"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("working directory was deleted")) == (3, 1), done.stderr
