"""Have the kernel keep this process from writing files, running programs and using the network, for as long as it lives.

Landlock (Linux 5.13) refuses to write, create, remove or run any file; a seccomp filter refuses sockets, new programs and io_uring.
Both are called through ctypes: no package is needed, and where one is missing the caller hears of it.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from struct import pack

PROTECTIONS = ("files", "network")

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # the same numbers on every architecture
_VERSION_ONLY = 1
_FILES = 0x1FFF & ~0b1100  # every right of the first version but to read files and to list directories
_RIGHTS_SINCE = {2: 1 << 13, 3: 1 << 14}  # moving files between directories, truncating them
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # abstract sockets and signals, since version 6

# socket socketpair bind listen accept accept4 connect sendto sendmsg execve execveat (fork vfork) ptrace kill bpf process_vm_writev
# io_uring_setup
_REFUSED = {
    "x86_64": (0xC000003E, (41, 53, 49, 50, 43, 288, 42, 44, 46, 59, 322, 57, 58, 101, 62, 321, 311, 425)),
    "aarch64": (0xC00000B7, (198, 199, 200, 201, 202, 242, 203, 206, 211, 221, 281, 117, 129, 280, 271, 425)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # the second is EPERM
_OTHER_NUMBERING = 0x40000000  # of the x32 calls of x86_64


def confine() -> tuple[str, ...]:
    """Confine this process and all its threads.

    Returns:
        Those of `PROTECTIONS` that now hold; the kernel, or this machine's architecture, does not know the others.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return ()
    except (OSError, AttributeError):  # no Linux
        return ()
    steps: dict[str, Callable[[ctypes.CDLL], bool]] = {"files": _no_files, "network": _no_network}
    return tuple(name for name in PROTECTIONS if steps[name](libc))


def _no_files(libc: ctypes.CDLL) -> bool:
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION_ONLY)
    if version < 1:
        return False
    rights = _FILES
    for since, right in _RIGHTS_SINCE.items():
        rights |= right if version >= since else 0
    fields = [rights, *([_TCP] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = pack(f"={len(fields)}Q", *fields)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    return bool(ruleset >= 0 and libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)


def _no_network(libc: ctypes.CDLL) -> bool:
    if platform.machine() not in _REFUSED:
        return False
    program = _program(*_REFUSED[platform.machine()])
    code = ctypes.create_string_buffer(program, len(program))
    head = pack("@HP", len(program) // 8, ctypes.addressof(code))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, head, 0, 0) == 0)


def _program(architecture: int, refused: tuple[int, ...]) -> bytes:
    """The filter: instructions of code, steps ahead if true, steps ahead if false, and a number."""
    last = len(refused) + 3
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 0, last, architecture), (_LOAD, 0, 0, 0), (_AT_LEAST, last - 2, 0, _OTHER_NUMBERING)]
    lines += [(_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(pack("=HBBI", *line) for line in lines)
