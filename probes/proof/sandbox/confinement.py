"""Let the kernel keep this process from writing files, running programs and using the network, permanently.

Landlock (Linux 5.13) refuses to write, create, remove or run any file. A seccomp filter refuses what Landlock does not know: mode, owner,
times and attributes of files, sockets, new processes and programs, io_uring, and memory, signals and limits of other processes.
Both are called through ctypes: no package is needed, and the caller learns which protection is missing.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from struct import pack

PROTECTIONS = ("files", "network")

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_CREATE_RULESET, _RESTRICT_SELF = 444, 446  # system call numbers that are equal on every architecture
_VERSION_ONLY = 1
_FILES = 0x1FFF & ~0b1100  # every right of the first version except reading files and listing directories
_RIGHTS_SINCE = {2: 1 << 13, 3: 1 << 14}  # moving files between directories, truncating them
_TCP = 0b11  # bind and connect, since version 4
_SCOPES = 0b11  # abstract sockets and signals, since version 6


# Numbers of system calls on x86_64 and on aarch64, which lacks some of them.
_REFUSED: dict[str, tuple[int, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211), "execve": (59, 221),
    "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "ptrace": (101, 117), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "setpriority": (141, 140), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setaffinity": (203, 122), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "unshare": (272, 97),
    "setns": (308, 268), "chroot": (161, 51), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
_REFUSED_EVERYWHERE = {  # system calls of later kernels have one number on all architectures
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "pidfd_open": 434, "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    "file_setattr": 469,
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # as in a filter, in the order of the numbers
_CLONE, _PRLIMIT = (56, 220), (302, 261)  # refused except for threads, and for this process itself
_CLONE3 = 435  # its flags are in memory, which a filter cannot read; glibc uses `clone` if the kernel lacks it
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in the filter's data; of the argument the lower half
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026  # the second is EPERM, the third ENOSYS
_THREAD = 0x10000  # CLONE_THREAD
_OTHER_NUMBERING = 0x40000000  # the x32 system calls of x86_64


def confine() -> tuple[str, ...]:
    """Confine this process and all its threads.

    Returns:
        Those of `PROTECTIONS` that now hold; the kernel, or this machine's architecture, does not know the others.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return ()
    except (OSError, AttributeError):  # not Linux
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
    if platform.machine() not in _ARCHITECTURES:
        return False
    program = _program(platform.machine())
    code = ctypes.create_string_buffer(program, len(program))
    head = pack("@HP", len(program) // 8, ctypes.addressof(code))
    return bool(libc.prctl(_SET_SECCOMP, _FILTER, head, 0, 0) == 0)


def _program(machine: str) -> bytes:
    """The filter: each line has a code, labels of the lines that follow if it is true and if not (empty: the next), and a number."""
    column = [*_ARCHITECTURES].index(machine)
    numbers = [number for row in _REFUSED.values() if (number := row[column]) is not None]
    refused = [(_EQUAL, "refuse", "", number) for number in (*numbers, *_REFUSED_EVERYWHERE.values())]
    head = [(_LOAD, "", "", _ARCHITECTURE), (_EQUAL, "", "refuse", _ARCHITECTURES[machine]), (_LOAD, "", "", _NUMBER)]
    head += [(_AT_LEAST, "refuse", "", _OTHER_NUMBERING), *refused, (_EQUAL, "unknown", "", _CLONE3)]
    head += [(_EQUAL, "clone", "", _CLONE[column]), (_EQUAL, "prlimit", "", _PRLIMIT[column]), (_RETURN, "", "", _ALLOW)]
    labelled = {
        "clone": [(_LOAD, "", "", _FIRST_ARGUMENT), (_HAS_BIT, "allow", "refuse", _THREAD)],
        "prlimit": [(_LOAD, "", "", _FIRST_ARGUMENT), (_EQUAL, "allow", "refuse", 0)],
        "allow": [(_RETURN, "", "", _ALLOW)],
        "refuse": [(_RETURN, "", "", _REFUSE)],
        "unknown": [(_RETURN, "", "", _UNKNOWN)],
    }
    lines, places = list(head), {}
    for label, more in labelled.items():
        places[label] = len(lines)
        lines += more
    steps = [tuple(places[label] - at - 1 if label else 0 for label in line[1:3]) for at, line in enumerate(lines)]
    return b"".join(pack("=HBBI", line[0], *ahead, line[3]) for line, ahead in zip(lines, steps, strict=True))
