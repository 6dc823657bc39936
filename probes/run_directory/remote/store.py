"""A folder that fsspec can access, such as `s3://bucket/runs/a`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from probes.errors import MissingExtra, ProbesError, StorageError
from probes.optional_package import import_optional


class RemoteFolder:
    """The files directly in a folder of a store.

    Args:
        url: its URL.

    Raises:
        MissingExtra: fsspec, or the package for this kind of store, is not installed.
        StorageError: the URL has no store that is known.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        package = import_optional("fsspec", "remote", f'"{url}"')
        scheme = url.partition(":")[0]
        try:
            self._files, self._root = package.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            needed = error.name or "a package of its own"
            raise MissingExtra(f"the store `{scheme}` needs the package `{needed}`; install it with: pip install {needed}") from error
        except ValueError as error:
            raise StorageError(f'"{url}": {_first_line(error)}') from error

    def sizes(self) -> dict[str, int]:
        """The size of each file by its name; empty if the folder does not exist."""
        with self._answering("listed"):
            with suppress(AttributeError):
                self._files.invalidate_cache()
            try:
                found = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
            return {one["name"].rstrip("/").rpartition("/")[2]: int(one.get("size") or 0) for one in found if one["type"] == "file"}

    def get(self, name: str, path: Path) -> None:
        """Download a file; it has its name when it is complete.

        Raises:
            StorageError: the store does not give it.
        """
        temporary = path.with_name(f"{path.name}.part")
        with self._answering("read"):
            self._files.get_file(f"{self._root}/{name}", str(temporary))
        temporary.replace(path)

    def put(self, path: Path, name: str) -> None:
        """Upload a file, and check that the store has all of it.

        Raises:
            StorageError: the store does not take it.
        """
        with self._answering("written"):
            self._files.makedirs(self._root, exist_ok=True)
            self._files.put_file(str(path), f"{self._root}/{name}")
            size = self._files.info(f"{self._root}/{name}")["size"]
        if size < path.stat().st_size:
            raise StorageError(f'"{self.url}/{name}" has {size} bytes of {path.stat().st_size} after the upload')

    @contextmanager
    def _answering(self, done: str) -> Iterator[None]:
        """Convert any exception of a store into an error that names the store."""
        try:
            yield
        except ProbesError:
            raise
        except Exception as error:  # a store may raise anything
            raise StorageError(f'"{self.url}" cannot be {done}: {type(error).__name__}: {_first_line(error)}') from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
