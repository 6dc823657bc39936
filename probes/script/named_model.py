"""A model by its name on the command line: `package.module:callable` or `path/to/file.py:callable`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from torch.nn import Module

from probes.errors import ProbesError, StorageError, UsageError, nearest
from probes.script.stdout_aside import stdout_to_stderr

T = TypeVar("T")
FORM = "PKG:CALLABLE or FILE.py:CALLABLE, such as models.resnet:build or train.py:Net"


def named_model(name: str) -> Module | Mapping[str, Module]:
    """Import a module and get a model from it; what this prints goes to stderr.

    Args:
        name: module or file, a colon, and a callable without arguments or a model; the working directory is on the path.

    Returns:
        The model, or several by name if the callable returns a mapping.

    Raises:
        UsageError: the name leads to no model.
        StorageError: there is no such file.
    """
    place, colon, attribute = name.rpartition(":")
    if not (colon and place and attribute):
        raise UsageError(f"model '{name}' is not {FORM}")
    with stdout_to_stderr():
        return _model(name, _attribute(_imported(place), place, attribute))


def _imported(place: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not place.endswith(".py"):
        return _guarded(f"importing '{place}'", lambda: importlib.import_module(place))
    path = Path(place).absolute()
    if not path.is_file():
        raise StorageError(f"model file '{place}' does not exist")
    return _guarded(f"importing '{place}'", lambda: _file(path))


def _file(path: Path) -> ModuleType:
    """Import a file as a module with its name; modules next to the file can be imported."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AssertionError(f"BUG: '{path}' ends with .py but has no loader")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, place: str, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
            hint = nearest(attribute, public) or "it has: " + (", ".join(public[:8]) or "no callables")
            raise UsageError(f"'{place}' has no '{attribute}'; {hint}")
        found = getattr(found, part)
    return found


def _model(name: str, found: Any) -> Module | Mapping[str, Module]:
    if isinstance(found, Module):
        return found
    if not callable(found):
        raise UsageError(f"'{name}' is a {type(found).__name__}, neither a model nor a callable that makes one")
    _needs_nothing(name, found)
    made: object = _guarded(f"calling '{name}'", found)
    if isinstance(made, Module):
        return made
    if isinstance(made, Mapping) and made and all(isinstance(model, Module) for model in made.values()):
        return made
    raise UsageError(f"'{name}' gives a {type(made).__name__}, not a model, nor models by name")


def _needs_nothing(name: str, found: Any) -> None:
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        message = f"'{name}' cannot be called without arguments ({error})"
        raise UsageError(f"{message}; name a function that takes none and returns the model") from None
    except ValueError:  # a callable written in C may have no signature; the call itself then shows
        return


def _guarded(doing: str, work: Callable[[], T]) -> T:
    """The result of user code; an exception is reported with its innermost place."""
    try:
        return work()
    except ProbesError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything, and a script may end with `sys.exit`
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if last.filename.startswith("<frozen ") else f" ({last.filename}:{last.lineno})"
        raise UsageError(f"{doing} failed: {type(error).__name__}: {error}{place}") from error
