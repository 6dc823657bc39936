"""One HDF5 file per epoch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from probes.component import Sink
from probes.errors import MissingExtra

PACKAGES = {"zstd": "zstandard", "blosc2": "blosc2"}  # compression -> the package that the sealer needs for it


class Segments(BaseModel):
    """Cuts a long epoch into files."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    steps: Annotated[int, Field(ge=1, description="committed steps of a segment")]


class Hdf5(Sink):
    """Captures go into one HDF5 file per epoch."""

    kind: Literal["hdf5"] = "hdf5"
    compression: Annotated[
        Literal["none", "gzip", "zstd", "blosc2"],
        Field(description="zstd and blosc2 need their packages, and other readers of the files a plug-in"),
    ] = "none"
    seal: Annotated[Segments | None, Field(description="cut an epoch into segments; off without it")] = None

    def check(self) -> None:
        """Ask before step 0 for what the sealer will need at the first epoch's end.

        Raises:
            MissingExtra: the compression's package is not installed.
        """
        package = PACKAGES.get(self.compression)
        if package is not None and find_spec(package) is None:
            raise MissingExtra(
                f"compression `{self.compression}` needs a package; install it with: pip install 'torch-probes[{self.compression}]'"
            )
