"""Run a script or a module as the interpreter itself would."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import CodeType, ModuleType, TracebackType

from probes.errors import StorageError, UsageError
from probes.optional_package import require_torch
from probes.progress.stderr import tell

INTERRUPTED = 130
LAUNCHERS = {  # by module or name of the command: the command, and its option for a program that is a module
    "torch.distributed.run": ("torchrun", "-m"),
    "torch.distributed.launch": ("torchrun", "-m"),
    "torchrun": ("torchrun", "-m"),
    "accelerate.commands.launch": ("accelerate launch", "-m"),
    "accelerate": ("accelerate", "-m"),
    "deepspeed.launcher.runner": ("deepspeed", "--module"),
    "deepspeed": ("deepspeed", "--module"),
}
OURS = str(Path(__file__).resolve().parent.parent) + os.sep


@dataclass(frozen=True)
class ProgramEnding:
    """The end of a program.

    Attributes:
        code: the exit code that the interpreter would have ended with.
        error: the exception that ended it; None if it ended normally or left with code 0.
    """

    code: int
    error: BaseException | None = None


@dataclass(frozen=True)
class Program:
    """A script or a module, and its arguments.

    Attributes:
        name: path of a script, compiled or not, of a directory or an archive that holds a `__main__.py`, or name of a module.
        arguments: what follows it on the command line.
        is_module: whether `name` names a module, as after `python -m`.
    """

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The program as words of a command line."""
        return ("-m", self.name, *self.arguments) if self.is_module else (self.name, *self.arguments)

    @property
    def path(self) -> Path:
        """The file of a script."""
        path = Path(self.name)
        return path / "__main__.py" if path.is_dir() else path

    def check(self) -> None:
        """Refuse a missing script, before anything runs.

        Raises:
            StorageError: there is no such file.
        """
        if self.is_module or self.path.is_file():
            return
        if self.path.is_fifo():
            raise StorageError(f"script '{self.path}' is a pipe, which can be read only once; save it as a file")
        raise StorageError(f"script '{self.path}' does not exist; a module is run with `-m {self.name.removesuffix('.py')}`")

    def execute(self) -> ProgramEnding:
        """Run the program as `__main__` of this process.

        `sys.modules["__main__"]`, `sys.argv` and `sys.path` stay as the program left them: its exit handlers, and what
        it pickled, continue finding themselves.
        """

        def run() -> None:
            main, code = self._module() if self.is_module else self._script()
            sys.modules["__main__"] = main
            exec(code, main.__dict__)

        return _ending(run)

    def _script(self) -> tuple[ModuleType, CodeType]:
        path = str(Path(self.name).absolute())
        sys.argv = [self.name, *self.arguments]
        importer = get_importer(path)
        if importer is not None:
            _put_first(path)
            spec = importer.find_spec("__main__")
            if spec is None:
                raise StorageError(f"archive '{self.name}' holds no `__main__.py`")
            return _main(spec.origin, spec.loader, spec), _code(spec.loader, "__main__", self.name)
        _put_first(str(Path(path).parent.resolve()))
        if path.endswith(".pyc"):
            compiled = SourcelessFileLoader("__main__", path)
            return _main(path, compiled), _code(compiled, "__main__", self.name)
        try:
            with io.open_code(path) as file:
                text = file.read()
        except OSError as error:
            raise StorageError(f"script '{self.name}' cannot be read: {error.strerror}") from error
        code = compile(text, path, "exec", dont_inherit=True)
        return _main(path, SourceFileLoader("__main__", path)), code

    def _module(self) -> tuple[ModuleType, CodeType]:
        _put_first(str(Path.cwd()))
        spec = _found(self.name)
        code = _code(spec.loader, spec.name, self.name)
        sys.argv = [spec.origin or self.name, *self.arguments]
        return _main(spec.origin, spec.loader, spec), code


def _code(loader: object, name: str, shown: str) -> CodeType:
    """The code of a module.

    Raises:
        StorageError: it has none.
    """
    code: CodeType | None = getattr(loader, "get_code", lambda _name: None)(name)
    if code is None:
        raise StorageError(f"module '{shown}' has no Python code to run")
    return code


def _main(file: str | None, loader: object, spec: ModuleSpec | None = None) -> ModuleType:
    """The module `__main__`, with the attributes that the interpreter gives it."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=file,
        __builtins__=__builtins__,
        __cached__=spec.cached if spec else None,
        __package__=spec.parent if spec else None,
        __loader__=loader,
        __annotations__={},
        __spec__=spec,
    )
    return main


def _found(name: str) -> ModuleSpec:
    """The spec of a module, or of the `__main__` of a package."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise StorageError(f"no module '{name}' that can be run is found from '{Path.cwd()}'")
    return spec


def _put_first(directory: str) -> None:
    """Begin `sys.path` as the interpreter would: replace the directory that it added for the command `probes`."""
    if not sys.flags.safe_path:
        sys.path[:1] = [directory]


def _ending(run: Callable[[], None]) -> ProgramEnding:
    """The end of a part of the program; any end of it ends here, as in the interpreter."""
    try:
        run()
    except SystemExit as leaving:
        return _left(leaving)
    except KeyboardInterrupt as error:
        return ProgramEnding(INTERRUPTED, error)
    except BaseException as error:  # of whatever class, as in the interpreter
        return ProgramEnding(1, error)
    return ProgramEnding(0)


def _left(leaving: SystemExit) -> ProgramEnding:
    """The exit code of `sys.exit`, as the interpreter determines it."""
    code = leaving.code
    if code is None:
        return ProgramEnding(0)
    if isinstance(code, int):  # not a number of NumPy or torch, which the interpreter prints
        return ProgramEnding(int(code), leaving if code else None)
    tell(str(code))
    return ProgramEnding(1, leaving)


def wait_for_threads(ending: ProgramEnding) -> ProgramEnding:
    """Let the threads of the program end after its main code.

    Args:
        ending: the end of the main code.

    Returns:
        That ending, if nothing interrupts the wait; what a signal handler raises there ends the program early, but has no exit code.
    """
    waited = _ending(join_threads).error
    if waited is None:
        return ending
    tell(f"Exception ignored in: {threading!r}")
    sys.__excepthook__(type(waited), waited, trimmed(waited))
    return ending if ending.error is not None else replace(ending, error=waited)


def join_threads() -> None:
    """Wait for the threads of this process, and for what it gave to executors, as the interpreter does at the end of a process."""
    main = threading.main_thread()
    if threading.current_thread() is main and any(not one.daemon and one is not main for one in threading.enumerate()):
        # A thread may wait for the end of the main thread, and those of an executor wait for this call. A second call has no effect.
        threading._shutdown()  # type: ignore[attr-defined]  # it has no public name


def show(ending: ProgramEnding) -> ProgramEnding:
    """Print a program's traceback as the interpreter would, without frames of this package.

    Returns:
        The ending; its exit code is another one if the program's own `sys.excepthook` leaves with that.
    """
    error = ending.error
    if isinstance(error, StorageError):
        tell(f"error: {error}")
    elif error is not None and not isinstance(error, SystemExit):
        trace = error.__traceback__ = trimmed(error)
        try:
            sys.excepthook(type(error), error, trace)
        except SystemExit as leaving:
            return replace(ending, code=_left(leaving).code)
        except BaseException as broken:  # of whatever class, as in the interpreter
            tell("Error in sys.excepthook:")
            sys.__excepthook__(type(broken), broken, trimmed(broken))
            tell("\nOriginal exception was:")
            sys.__excepthook__(type(error), error, trace)
    return ending


def trimmed(error: BaseException) -> TracebackType | None:
    """The traceback of an error without frames of this package; one that ends inside the package is a bug of probes and stays complete.

    A script that cannot be compiled has no frames of its own.
    """
    frames: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    if frames and _ours(frames[-1]):
        return None if isinstance(error, SyntaxError) else frames[0]
    kept = None
    for frame in reversed(frames):
        if not _ours(frame):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(OURS)


def unknown_to(program: Program, options: Sequence[str]) -> str:
    """The first argument of a script that is an option of `probes run`, and whose name does not occur in the script; else empty.

    Args:
        program: the script; a module is not read, since finding it may run code.
        options: our options.
    """
    given = next((word for word in program.arguments if word.partition("=")[0] in options), "")
    if not given or program.is_module or program.path.suffix == ".pyc" or get_importer(str(program.path)) is not None:
        return ""
    try:
        text = program.path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    name = given.partition("=")[0]
    return "" if name in text or name.lstrip("-").replace("-", "_") in re.findall(r"\w+", text) else given


def program_of(verb: str, words: Sequence[str], before: str = "SPEC") -> Program:
    """Parse the program on a command line: `SCRIPT ARGS...` or `-m MODULE ARGS...`.

    Args:
        verb: the command, for messages.
        words: what follows the spec.
        before: the spec as it was given, for messages.

    Raises:
        UsageError: there is no program, or an option instead.
        StorageError: there is no such script.
        MissingExtra: torch is not installed.
    """
    require_torch(f"`probes {verb}`")
    words = words[1:] if words[:1] == ("--",) else words
    line = f"probes {verb} [OPTIONS] {before}".rstrip()
    if not words:
        raise UsageError(f"`probes {verb}` needs a script to run: {line} SCRIPT [ARGS]..., or {line} -m MODULE [ARGS]...")
    if words[0] == "-m" and len(words) == 1:
        raise UsageError(f"`-m` needs the name of a module: {line} -m MODULE [ARGS]...")
    _refuse_launcher(line, words[1:] if words[0] == "-m" else [Path(words[0]).name, *words[1:]])
    if words[0] == "-m":
        return Program(words[1], tuple(words[2:]), is_module=True)
    if words[0].startswith("-"):
        message = f"found option `{words[0]}` where the script is expected"
        raise UsageError(
            f"{message}; options of `probes {verb}` come before the spec, those of the script after it: {line} SCRIPT [ARGS]..."
        )
    program = Program(words[0], tuple(words[1:]))
    program.check()
    return program


def _refuse_launcher(line: str, words: Sequence[str]) -> None:
    """Refuse a program that starts the training in other processes: it calls no model itself, and its processes have no probes.

    Args:
        line: the command up to the program, for the message.
        words: the module, or the name of the script, and its arguments.

    Raises:
        UsageError: it is such a program.
    """
    if words[0] not in LAUNCHERS:
        return
    name, option = LAUNCHERS[words[0]]
    at = next((index for index, word in enumerate(words) if index and (word in ("-m", "--module") or word.endswith(".py"))), len(words))
    program = words[at:] or ("SCRIPT", "[ARGS]...")
    raise UsageError(
        f"`{words[0]}` starts the program in other processes, which would have no probes; put `probes` after it: "
        f"{' '.join([name, *words[1:at], option, line, *program])}"
    )
