"""Signatures of OpenSSH: the signer of a text, by a list of keys that the auditor keeps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from probes.errors import FileRefused, MissingExtra, UsageError
from probes.plain_file import read_plain

NAMESPACE = "probes"
LARGEST_SIGNATURE = 1 << 16
SECONDS = 60


class Signers:
    """The keys whose signatures count.

    Attributes:
        path: a file as `ssh-keygen` reads it (`allowed_signers`): a name and a public key in each line.
    """

    def __init__(self, path: Path, run: Path) -> None:
        """Take a list of keys.

        Raises:
            UsageError: the file is in the run directory, so that who made the run chose the keys.
            StorageError: there is no such file.
        """
        if path.resolve().is_relative_to(run.resolve()):
            raise UsageError(f'"{path}" is in the run directory; choose the accepted keys yourself, and keep them in another place')
        read_plain(path.resolve())
        self.path = path.resolve()

    def signer(self, text: bytes, signature: bytes, place: str) -> str:
        """The name of the signer of a text.

        Raises:
            FileRefused: the signature is by no key of the list, or of another text, or for another purpose.
            MissingExtra: OpenSSH is not installed.
        """
        with TemporaryDirectory() as room:
            file = Path(room) / "signature"
            file.write_bytes(signature)
            known = _ssh_keygen("find-principals", "-f", str(self.path), "-s", str(file))
            names = known.stdout.decode(errors="replace").replace(",", "\n").split() if known.returncode == 0 else []
            for name in names:
                words = ("-f", str(self.path), "-I", name, "-n", NAMESPACE, "-s", str(file))
                if _ssh_keygen("verify", *words, text=text).returncode == 0:
                    return name
        by = "for another text or purpose" if names else f'by a key that "{self.path}" does not have'
        raise FileRefused("not-signed", f'"{place}" has a signature {by}')


def signature_beside(path: Path) -> bytes:
    """The signature of a file, from the file next to it.

    Raises:
        FileRefused: there is none.
    """
    place = Path(f"{path}.sig")
    if not place.is_file():
        raise FileRefused("not-signed", f'"{path}" has no signature: the file "{place}" does not exist')
    return read_plain(place, LARGEST_SIGNATURE)


def sign(path: Path, key: Path) -> Path:
    """Sign a file, and write the signature next to it; return its path.

    Raises:
        UsageError: the key cannot sign.
        MissingExtra: OpenSSH is not installed.
    """
    place = Path(f"{path}.sig")
    if place.exists():
        raise UsageError(f'"{place}" exists already; a signature is never replaced')
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(path))
    if done.returncode or not place.is_file():
        why = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f'"{key}" cannot sign: {why[-1] if why else f"ssh-keygen ended with {done.returncode}"}')
    return place


def _ssh_keygen(task: str, *words: str, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise MissingExtra("signatures need the program `ssh-keygen`; install OpenSSH 8.2 or later")
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    try:
        return subprocess.run([program, "-Y", task, *words], capture_output=True, check=False, timeout=SECONDS, **given)
    except subprocess.TimeoutExpired as error:  # it asks on the terminal for a passphrase, or waits for a touch of a security key
        raise UsageError(f"`ssh-keygen` did not end within {SECONDS} seconds; an agent can hold a key that has a passphrase") from error
