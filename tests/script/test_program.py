import os
import pickle
import py_compile
import subprocess
import sys
import zipapp
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from probes.errors import StorageError, UsageError
from probes.script.program import Program, ProgramEnding, program_of, show, wait_for_threads
from tests.warm import programs


def written(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return str(path)


def test_a_script_has_the_same_main_module_as_under_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = written(
        tmp_path,
        """
        import sys
        assert __name__ == "__main__"
        assert sys.modules["__main__"].__dict__ is globals()
        assert __file__ == sys.path[0] + "/train.py"
        assert __spec__ is None and __package__ is None
        assert sys.argv == ["train.py", "--lr", "1"]
        """,
    )
    monkeypatch.chdir(tmp_path)
    assert script.endswith("train.py")
    assert Program("train.py", ("--lr", "1")).execute() == Program("train.py").execute().__class__(0)


def test_a_script_inherits_no_future_imports_of_probes(tmp_path: Path) -> None:
    script = written(tmp_path, "def f(x: 1 + 1): ...\nassert f.__annotations__['x'] == 2")
    assert Program(script).execute().code == 0


def test_a_module_runs_with_its_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "", "lab/__init__.py")
    written(
        tmp_path,
        """
        import sys
        from . import answer
        assert __spec__.name == "lab.train" and __package__ == "lab"
        assert sys.argv == [__file__, "x"]
        sys.exit(answer.number)
        """,
        "lab/train.py",
    )
    written(tmp_path, "number = 7", "lab/answer.py")
    monkeypatch.chdir(tmp_path)
    assert Program("lab.train", ("x",), is_module=True).execute().code == 7


def test_a_directory_runs_its_main(tmp_path: Path) -> None:
    written(tmp_path, "import sys; sys.exit(4)", "app/__main__.py")
    assert Program(str(tmp_path / "app")).execute().code == 4


SHOW = """
import sys
print(__name__, __file__, __package__, __spec__ and (__spec__.name, __spec__.origin), type(__loader__).__name__, sys.argv, sys.path[0])
import beside
"""


@pytest.mark.parametrize("form", ["train.py", "train.pyc", "app", "app.pyz", "app.pex"])
def test_all_that_the_interpreter_takes_as_a_script_has_the_same_main_module(tmp_path: Path, form: str) -> None:
    for folder in ("", "app/"):
        written(tmp_path, "", f"{folder}beside.py")
    written(tmp_path, SHOW, "app/__main__.py")
    py_compile.compile(written(tmp_path, SHOW), str(tmp_path / "train.pyc"))
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pex", interpreter="/usr/bin/env python3")
    place = str(tmp_path / form)
    ours = f"from probes.script.program import Program; sys.exit(Program({place!r}, ('--a', 'b')).execute().code)"
    plain = subprocess.run([sys.executable, place, "--a", "b"], capture_output=True, text=True, check=True, cwd="/")
    program = programs.run("-c", f"import sys; {ours}", check=True)
    assert program.stdout == plain.stdout != ""


def test_an_archive_without_a_main_and_a_pipe_are_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "empty.pyz", "w") as archive:
        archive.writestr("a.py", "")
    ended = Program(str(tmp_path / "empty.pyz")).execute()
    assert isinstance(ended.error, StorageError)
    assert "holds no `__main__.py`" in str(ended.error)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="is a pipe, which can be read only once"):
        Program(str(tmp_path / "pipe")).check()


@pytest.mark.parametrize(("leaving", "code"), [("", 0), ("0", 0), ("3", 3), ("None", 0), ("'no data'", 1)])
def test_the_exit_status_of_a_script_is_its_code(tmp_path: Path, capsys: pytest.CaptureFixture[str], leaving: str, code: int) -> None:
    ending = Program(written(tmp_path, f"import sys; sys.exit({leaving})")).execute()
    assert ending.code == code
    assert (ending.error is None) == (code == 0)
    assert capsys.readouterr().err == ("no data\n" if leaving == "'no data'" else "")


@pytest.mark.parametrize("leaving", ["0.0", "__import__('numpy').int64(0)", "__import__('numpy').zeros(2)"])
def test_an_exit_with_a_number_of_another_type_than_int_is_1_as_in_the_interpreter(tmp_path: Path, leaving: str) -> None:
    ending = Program(written(tmp_path, f"import sys; sys.exit({leaving})")).execute()
    assert (ending.code, type(ending.error)) == (1, SystemExit)


def test_an_interrupt_is_130(tmp_path: Path) -> None:
    assert Program(written(tmp_path, "raise KeyboardInterrupt")).execute().code == 130


def test_a_traceback_begins_in_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = written(tmp_path, "def fail():\n    raise ValueError('bad')\nfail()")
    ending = Program(script).execute()
    assert ending.code == 1
    assert ending.error is not None
    show(ending)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{script}", line 3, in <module>'
    assert lines[-1] == "ValueError: bad"


def test_a_script_that_cannot_be_compiled_is_reported_without_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = written(tmp_path, "def f(:")
    show(Program(script).execute())
    assert capsys.readouterr().err.splitlines()[0] == f'  File "{script}", line 1'


def test_a_script_that_cannot_be_read_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = str(tmp_path / "gone.py")
    assert show(Program(script).execute()).code == 1
    assert capsys.readouterr().err == f"error: script '{script}' cannot be read: No such file or directory\n"


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(143)])
def test_an_exception_in_the_wait_for_threads_does_not_change_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException
) -> None:
    def interrupted() -> None:
        raise raised

    monkeypatch.setattr("probes.script.program.join_threads", interrupted)
    assert wait_for_threads(ProgramEnding(0)) == ProgramEnding(0, raised)
    assert wait_for_threads(ProgramEnding(7, failed := SystemExit(7))) == ProgramEnding(7, failed)
    assert capsys.readouterr().err.count("Exception ignored in: <module 'threading'") == 2


def test_an_object_pickled_by_a_script_finds_its_class_after_the_script(tmp_path: Path) -> None:
    Program(written(tmp_path, "import pickle\nclass Thing: pass\ndata = pickle.dumps(Thing())")).execute()
    main = sys.modules["__main__"]
    assert type(pickle.loads(main.data)) is main.Thing


def test_a_spawned_process_finds_the_script(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        """
        import multiprocessing
        def double(x):
            return 2 * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(double, [1, 2]) == [2, 4]
        """,
    )
    assert Program(script).execute().error is None


def test_a_missing_module_is_reported_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    ending = Program("no_such_module", is_module=True).execute()
    assert ending.code == 1
    assert isinstance(ending.error, StorageError)
    show(ending)
    assert capsys.readouterr().err.startswith("error: no module 'no_such_module' that can be run")


def test_words_name_a_script_or_a_module(tmp_path: Path) -> None:
    script = written(tmp_path, "")
    assert program_of("run", (script, "--out", "x")) == Program(script, ("--out", "x"))
    assert program_of("run", ("--", script)) == Program(script)
    assert program_of("run", ("-m", "lab.train", "-m")) == Program("lab.train", ("-m",), is_module=True)


def test_an_option_after_the_spec_is_answered_with_its_right_place() -> None:
    with pytest.raises(UsageError, match=r"found option `--out` where the script is expected; options of `probes run` come before"):
        program_of("run", ("--out", "d", "train.py"), "probe.yaml")
    with pytest.raises(UsageError, match=r"needs a script to run: probes run \[OPTIONS\] probe.yaml SCRIPT"):
        program_of("run", (), "probe.yaml")
    with pytest.raises(UsageError, match="needs the name of a module"):
        program_of("run", ("-m",), "probe.yaml")
    with pytest.raises(StorageError, match=r"script 'none.py' does not exist"):
        program_of("run", ("none.py",))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            "-m torch.distributed.run --nproc-per-node 2 train.py --lr 1",
            "torchrun --nproc-per-node 2 -m probes run [OPTIONS] p.yaml train.py --lr 1",
        ),
        ("/bin/torchrun --nnodes 1 -m lab.train", "torchrun --nnodes 1 -m probes run [OPTIONS] p.yaml -m lab.train"),
        ("torchrun", "torchrun -m probes run [OPTIONS] p.yaml SCRIPT [ARGS]..."),
        ("accelerate launch --cpu train.py", "accelerate launch --cpu -m probes run [OPTIONS] p.yaml train.py"),
        ("-m accelerate.commands.launch train.py", "accelerate launch -m probes run [OPTIONS] p.yaml train.py"),
        ("deepspeed --num_gpus 2 train.py", "deepspeed --num_gpus 2 --module probes run [OPTIONS] p.yaml train.py"),
    ],
)
def test_a_launcher_is_refused_before_it_starts_with_the_command_to_type(given: str, shown: str) -> None:
    with pytest.raises(UsageError) as refusal:
        program_of("run", given.split(), "p.yaml")
    assert str(refusal.value).endswith(f"put `probes` after it: {shown}")


def test_annotations_of_a_script_are_kept_as_the_interpreter_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Program(written(tmp_path, "rate: float = 0.1\nprint(__annotations__, type(__loader__).__name__)")).execute().code == 0
    assert capsys.readouterr().out == "{'rate': <class 'float'>} SourceFileLoader\n"
