"""Opens HDF5 files for reading: content that a capture file never has is refused when it is accessed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from errno import EAGAIN, EWOULDBLOCK
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from probes.capture_file.hdf5_storage import BYTE, DatasetStorage, FileContent, StoredArray, StoredBytes
from probes.errors import FileRefused, StorageError
from probes.plain_file import refuse_holes, regular

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK = 64
FORMAT = "capture-file.v1"
SCALE_ATTRIBUTES = {
    b"DIMENSION_LIST": h5py.h5t.VLEN,
    b"REFERENCE_LIST": h5py.h5t.COMPOUND,
}
LARGEST_ATTRIBUTE = 1 << 20
MOST_ATTRIBUTES = 256  # a series has fifteen, and one more for each axis with labels
TRUNCATED = "truncated file"  # HDF5's message: h5py raises OSError for this and for any other damage, without a number


def open_file(path: Path) -> Hdf5File:
    """Open a capture file, trusting nothing in it.

    No plug-in of the HDF5 library is ever loaded, and no file except `path` is opened. Others may have it open as well.

    Args:
        path: a regular file, or a link to one: in a run directory, `Directory` refuses links.

    Returns:
        The file; its objects are checked one by one, when they are touched.

    Raises:
        FileRefused: `not-regular`, `not-hdf5`, `truncated`, `damaged`, `not-a-capture-file` or `newer-format`.
        StorageError: there is no such file, or it may not be read.
    """
    _forbid_plugins()
    opened = Hdf5File(_OpenedObject(path))
    opened.check_format()
    return opened


def _forbid_plugins() -> None:
    """Empty the search path for plug-ins: HDF5 executes code of every library there when it searches a filter."""
    for _ in range(h5py.h5pl.size()):
        h5py.h5pl.remove(0)


def _stated_bytes(head: bytes) -> int:
    version = head[8] if len(head) > 8 else 0
    at = {0: 40, 1: 44}.get(version, 28)  # of versions 0, 1, and of 2 and 3; addresses have 8 bytes in every capture file
    return int.from_bytes(head[at : at + 8], "little")


def _check_start(path: Path) -> None:
    """Refuse what is not a regular file that begins like an HDF5 file, before the HDF5 library opens it."""
    try:
        with os.fdopen(regular(path, follow=True), "rb", buffering=0) as stream:
            head = stream.read(SUPERBLOCK)
            if not head.startswith(SIGNATURE):
                raise FileRefused("not-hdf5", f'"{path}" is not an HDF5 file')
            refuse_holes(path, min(_stated_bytes(head), os.fstat(stream.fileno()).st_size))
    except (FileRefused, StorageError):
        raise
    except OSError as error:
        raise StorageError(f'"{path}" cannot be read: {error.strerror or error}') from error


class _OpenedObject:
    """A file that the HDF5 library has open.

    Attributes:
        path: where it is.
        content: its bytes.
        counted: what its objects store, as far as they were touched.
        root: identifier of the root group.
        number: what the HDF5 library calls the file; an object with another number is in another file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_start(path)
        with self.refusing("/"):
            handle = _handle(path)
            self.content = FileContent(path, handle)
            self.counted = StoredBytes(path, self.content.size)
            self.root = h5py.h5g.open(handle, b"/")
            self.number = h5py.h5o.get_info(self.root).fileno

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Convert errors of the HDF5 library on damaged metadata into a refusal with `name`."""
        try:
            yield
        except (FileRefused, StorageError):
            raise
        except (OSError, LookupError, ValueError, RuntimeError, TypeError, OverflowError) as error:
            code = "truncated" if TRUNCATED in str(error) else "damaged"
            raise FileRefused(code, f'"{name}" of "{self.path}" cannot be read: {error}') from error


def _handle(path: Path) -> h5py.h5f.FileID:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_sec2()  # HDF5_DRIVER in the environment would choose another
    # Closing and locking keep h5py's defaults, because the library refuses to open a file twice with different ones.
    try:
        return h5py.h5f.open(bytes(path), h5py.h5f.ACC_RDONLY, access)
    except OSError as error:
        if "unable to lock file" not in str(error) or error.errno in (EAGAIN, EWOULDBLOCK):
            raise
    access.set_file_locking(False, True)  # no locks on this file system, such as NFS mounted with `nolock`
    return h5py.h5f.open(bytes(path), h5py.h5f.ACC_RDONLY, access)


class Hdf5Group:
    """A group of a capture file.

    Attributes:
        name: path inside the file.
    """

    def __init__(self, file: _OpenedObject, identifier: Any, name: str) -> None:
        self._file = file
        self._id = identifier
        self.name = name

    def names(self) -> list[str]:
        """Names of the links in the group, sorted by their bytes; the links are not checked yet."""
        found: list[bytes] = []
        with self._file.refusing(self.name):
            self._id.links.iterate(found.append)
            return [name.decode() for name in found]

    def __contains__(self, name: str) -> bool:
        with self._file.refusing(self.name):
            return bool(self._id.links.exists(name.encode()))

    def group(self, name: str) -> Hdf5Group:
        """A subgroup."""
        found, _ = self._child(name)
        if not isinstance(found, h5py.h5g.GroupID):
            raise self._refuse("unsafe-type", name, "is not a group")
        return Hdf5Group(self._file, found, self._below(name))

    def array(self, name: str) -> StoredArray:
        """A dataset of this group, after the checks."""
        found, address = self._child(name)
        if not isinstance(found, h5py.h5d.DatasetID):
            raise self._refuse("unsafe-type", name, "is not a dataset")
        with self._file.refusing(self._below(name)):
            return DatasetStorage(self._file.path, self._below(name), self._file.content, found, self._file.counted, address).array()

    def text(self, name: str) -> str:
        """The bytes of a scalar text dataset of this group, whether or not they are UTF-8."""
        with self._file.refusing(self._below(name)):
            return self.content(name).decode()

    def content(self, name: str) -> bytes:
        """The bytes of a scalar text dataset below this one, whether or not they are UTF-8."""
        array = self.array(name)
        if array.dtype.kind != "S" or array.shape:
            raise self._refuse("unsafe-type", name, "is not a string")
        with self._file.refusing(self._below(name)):
            return bytes(array.read()[()])

    def checking(self) -> AbstractContextManager[None]:
        """A context in which an error means that the group is damaged, and is raised as a refusal."""
        return self._file.refusing(self.name)

    def attributes(self, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Attributes as plain Python data; arrays as lists.

        The two that dimension scales bring are passed over: they hold references, which are never followed.

        Args:
            without: names of attributes that nobody asks for; they are not touched.
        """
        with self._file.refusing(self.name):
            found, stored = {}, 0
            count = h5py.h5a.get_num_attrs(self._id)
            if count > MOST_ATTRIBUTES:
                raise FileRefused(
                    "oversized", f'"{self.name}" of "{self._file.path}" has {count} attributes; {MOST_ATTRIBUTES} are allowed'
                )
            names: list[bytes] = []
            h5py.h5a.iterate(self._id, names.append)  # to open by number, the library lists and sorts all of them each time
            for raw in names:
                attribute = h5py.h5a.open(self._id, raw)
                if raw not in SCALE_ATTRIBUTES or SCALE_ATTRIBUTES[raw] != attribute.get_type().get_class():
                    name = raw.decode()
                    stored += attribute.get_storage_size()
                    if name not in without:
                        found[name] = self._value(attribute, name)
            self._file.counted.store(~h5py.h5o.get_info(self._id).addr, self.name, stored)  # the complement: not the address of a dataset
            return found

    def attribute(self, name: str) -> Any:
        """One attribute, or None if there is none of this name."""
        with self._file.refusing(self.name):
            if not h5py.h5a.exists(self._id, name.encode()):
                return None
            return self._value(h5py.h5a.open(self._id, name.encode()), name)

    def _child(self, name: str) -> tuple[Any, int]:
        """The object of a hard link, in this same file, and its address."""
        with self._file.refusing(self._below(name)):
            kind = self._id.links.get_info(name.encode()).type
            if kind == h5py.h5l.TYPE_SOFT:
                raise self._refuse("soft-link", name, "is a soft link")
            if kind != h5py.h5l.TYPE_HARD:
                raise self._refuse("external-link", name, "is an external link")
            found = h5py.h5o.open(self._id, name.encode())
            about = h5py.h5o.get_info(found)
            if about.fileno != self._file.number:
                raise self._refuse("external-link", name, "is stored in another file")
            if about.rc != 1:
                raise self._refuse("extra-object", name, f"has {about.rc} names")
            self._file.counted.name(about.addr, self._below(name))
            return found, about.addr

    def _value(self, attribute: Any, name: str) -> Any:
        kind, shape = attribute.get_type(), attribute.get_space().shape
        if kind.committed() or shape is None:
            raise self._refuse("unsafe-type", f"@{name}", "has a variable-length or reference type, or no value")
        family, size = kind.get_class(), kind.get_size()
        if prod(shape) * size > LARGEST_ATTRIBUTE:
            raise self._refuse("shape-bomb", f"@{name}", f"is larger than {LARGEST_ATTRIBUTE} bytes")
        text = family == h5py.h5t.STRING and not kind.is_variable_str()
        if not text and family not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
            raise self._refuse("unsafe-type", f"@{name}", "is neither a number nor a fixed-length string")
        value = np.empty(shape, f"S{size}" if text else kind.dtype)
        attribute.read(value, mtype=kind)  # its own type, so nothing is converted
        return _decoded(value.tolist()) if text else value.tolist()

    def _below(self, name: str) -> str:
        return f"{self.name.rstrip('/')}/{name}"

    def _refuse(self, code: str, name: str, what: str) -> FileRefused:
        return FileRefused(code, f'"{self._below(name)}" of "{self._file.path}" {what}')


class Hdf5File(Hdf5Group):
    """An open capture file, which is its own root group."""

    def __init__(self, opened: _OpenedObject) -> None:
        super().__init__(opened, opened.root, "/")

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def file_bytes(self) -> FileContent:
        """The bytes of the whole file."""
        return self._file.content

    @property
    def stated_bytes(self) -> int:
        """The end of the file as stated in its superblock; bytes after it are not part of the HDF5 content."""
        return _stated_bytes(self.file_bytes.array(BYTE, SUPERBLOCK, 0).tobytes())

    def check_format(self) -> None:
        """Refuse a file that states another format, or a later version."""
        found = self.attribute("probes_format")
        if not isinstance(found, str) or not found.startswith("capture-file.v"):
            raise FileRefused("not-a-capture-file", f'"{self.path}" is an HDF5 file, but its root has no `probes_format`')
        if found != FORMAT:
            raise FileRefused("newer-format", f'"{self.path}" has the format "{found}"; this release reads "{FORMAT}"')


def _decoded(value: Any) -> Any:
    """Decode bytes to texts, in lists of any depth."""
    return [_decoded(one) for one in value] if isinstance(value, list) else value.decode()
