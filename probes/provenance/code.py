"""The script of a run and the state of its repository, without secrets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from probes.digest import canonical
from probes.provenance.redact import redacted, redacted_source
from probes.run_directory.create import where_started, working_directory
from probes.run_directory.manifest import CodeRecord, FileRecord, GitRecord

DIFF_NAME = "code.diff"
LARGEST_DIFF = 16 << 20
UNTRACKED = 100
TIMEOUT_S = 10.0
# Else the settings of a user decide which files a difference has, and by how many digits of objects and lines it describes them.
_SETTLED = (
    *("relative=false", "noprefix=false", "mnemonicPrefix=false", "srcPrefix=a/", "dstPrefix=b/", "context=3", "interHunkContext=0"),
    *("algorithm=myers", "indentHeuristic=true", "renames=true", "suppressBlankEmpty=false", "submodule=short"),
)
_DIFF = ("diff", "HEAD", "--binary", "--full-index", "-O/dev/null", "--no-ext-diff", "--no-textconv", "--no-color")
_OF_ANOTHER = ("DIR", "WORK_TREE", "INDEX_FILE", "COMMON_DIR", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "PREFIX")
_NOT_PASSED = frozenset(
    f"GIT_{name}" for name in (*_OF_ANOTHER, "DIFF_OPTS", "EXTERNAL_DIFF", "LITERAL_PATHSPECS")
)  # git sets some in hooks
_LONE = re.compile(r"\\u(dc[89a-f][0-9a-f])")  # a byte that cannot be decoded, as `in_unicode` writes it
_BEFORE_HOME, _AFTER_HOME = r"(?<![\w./~-])", r"(?=/|$)"  # of a path to the home directory in an argument


class GitUnknown(LookupError):
    """The state of the repository is not available; the message gives the reason."""


def without_home(text: str, home: Path | None = None) -> str:
    """A text of the system, such as a path, as it is recorded: with every path into the home directory written `~`, in Unicode.

    Args:
        text: as Python gave it; a byte that cannot be decoded is a lone surrogate in it, and is recorded as an escape.
        home: the home directory; by default that of the user, who may have none.
    """
    text = in_unicode(text)
    place = in_unicode(str(home or _home()))
    if place in ("/", ""):
        return text
    return re.sub(rf"{_BEFORE_HOME}{re.escape(place)}{_AFTER_HOME}", "~", text)


def with_home(text: str) -> str:
    """The inverse of `without_home` for one argument."""
    text = _LONE.sub(lambda found: chr(int(found[1], 16)), text)
    home = str(_home())
    return re.sub(f"{_BEFORE_HOME}~{_AFTER_HOME}", lambda _: home, text) if home else text


def _home() -> Path | str:
    """The home directory of the user; empty for a user without one, such as a number that a container was started with."""
    try:
        return Path.home()
    except RuntimeError:
        return ""


def in_unicode(text: str) -> str:
    """A text of the system in Unicode: a byte that cannot be decoded is written as an escape."""
    if text.isascii():
        return text
    with suppress(UnicodeEncodeError):  # in a locale without UTF-8, Python reads all other characters as bytes
        text = os.fsencode(text).decode("utf-8", "surrogateescape")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def code(script: str | None, file: Path | None, argv: Sequence[str], automatic: bool, unknown: dict[str, str]) -> tuple[CodeRecord, bytes]:
    """The code that ran, and the uncommitted changes of its repository.

    Args:
        script: the script or `-m module` as it was given; None in a notebook or an interpreter.
        file: the file that holds it.
        argv: its arguments.
        automatic: whether `probes run` attached the probes.
        unknown: takes what could not be found out, and why.

    Returns:
        The record, and the text of the difference to the commit; empty if there is none.
    """
    arguments = tuple(without_home(argument) for argument in redacted(argv))
    state, diff = None, b""
    try:
        state, diff = repository(file.parent if file else working_directory())
    except GitUnknown as error:
        unknown["code.git"] = without_home(str(error))
    if state and state.diff and len(diff) > LARGEST_DIFF:
        unknown["code.git.diff"] = f"the difference has {len(diff)} bytes, so only its hash was kept"
        diff = b""
    record = CodeRecord(
        script=without_home(script) if script is not None else None,
        sha256=_hash(file, unknown),
        argv=arguments,
        argv_sha256=sha256(canonical(arguments)).hexdigest(),
        directory=without_home(str(where_started())),
        automatic=automatic,
        git=state,
    )
    return record, diff


def _hash(file: Path | None, unknown: dict[str, str]) -> str | None:
    if file is None:
        unknown["code.sha256"] = "the code is not in a file"
        return None
    try:
        return sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        unknown["code.sha256"] = f"the script cannot be read: {error.strerror}"
        return None


def repository(directory: Path) -> tuple[GitRecord, bytes]:
    """Commit, branch and uncommitted changes of the repository a directory is in, secrets in them redacted.

    Raises:
        GitUnknown: there is no git, no repository, or no answer in time.
    """
    status = git(directory, "status", "--porcelain=v2", "--branch", "--untracked-files=no").decode(errors="replace").splitlines()
    heads = dict(line[2:].split(" ", 1) for line in status if line.startswith("# "))
    dirty = any(not line.startswith("# ") for line in status)
    if not {"branch.oid", "branch.head"} <= heads.keys():  # a program that ignores SIGCHLD hides the exit status of git
        raise GitUnknown("git printed no commit and no branch")
    commit, branch = heads["branch.oid"], heads["branch.head"]
    diff = b""
    if dirty and commit != "(initial)":
        settings = ("core.hooksPath=/dev/null", *(f"diff.{one}" for one in _SETTLED))  # it may refresh the index, for which there is a hook
        diff = git(directory, *(word for one in settings for word in ("-c", one)), *_DIFF)
        diff = redacted_source(diff) if len(diff) <= LARGEST_DIFF else diff  # larger ones are not saved
    untracked = git(directory, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", "*.py").split(b"\0")
    record = GitRecord(
        commit=commit,
        branch=None if branch == "(detached)" else branch,
        dirty=dirty,
        diff=FileRecord(name=DIFF_NAME, sha256=sha256(diff).hexdigest()) if diff else None,
        untracked=tuple(name.decode(errors="replace") for name in untracked[:UNTRACKED] if name),
    )
    return record, diff


def git(directory: Path, *arguments: str, errors: bool = False) -> bytes:
    """The output of a git command on the repository of a directory, which starts no configured file monitor.

    Args:
        directory: where it is run.
        arguments: its words.
        errors: whether what it prints on stderr is returned, too.

    Raises:
        GitUnknown: there is no git, no repository, or no answer in time.
    """
    program = shutil.which("git")
    if program is None:
        raise GitUnknown("git is not installed")
    command = [program, "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(directory), *arguments]
    try:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired as error:
        raise GitUnknown(f"git did not answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise GitUnknown(f"git cannot be run: {error}") from error
    if done.returncode:
        raise GitUnknown(done.stderr.decode(errors="replace").strip() or f"git ended with {done.returncode}")
    return done.stdout + (done.stderr if errors else b"")
