"""The options of the record: the HDF5 files that hold the captures of a run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from probes.component import Component
from probes.errors import MissingExtra

PACKAGES = {"zstd": "zstandard", "blosc2": "blosc2"}  # compression -> the package that the sealer needs


class Segments(BaseModel):
    """Splits a long epoch into several files."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    steps: Annotated[int, Field(ge=1, description="committed steps of a segment")]


class RecordOptions(Component):
    """Stores captures in one HDF5 file per epoch.

    In a spec this is the entry of `sinks` with `kind: hdf5`. It is not a `Sink`: a sink gets numbers of committed steps, while
    captures go from the hook to the journal, and the sealer builds the HDF5 file from the journal.
    """

    family: ClassVar[str] = "sink"

    kind: Literal["hdf5"] = "hdf5"
    compression: Annotated[
        Literal["none", "gzip", "zstd", "blosc2"],
        Field(description="compression of values; zstd and blosc2 need extra packages here, and an HDF5 filter plug-in in other readers"),
    ] = "none"
    seal: Annotated[
        Segments | None, Field(description="split an epoch into segments, such as {steps: 5000}; default: one file per epoch")
    ] = None

    def require_packages(self) -> None:
        """Check before step 0 that the packages for the sealer are installed, instead of failing at the end of the first epoch.

        Raises:
            MissingExtra: the compression's package is not installed.
        """
        package = PACKAGES.get(self.compression)
        if package is not None and find_spec(package) is None:
            raise MissingExtra(
                f"compression `{self.compression}` needs a package; install it with: pip install 'torch-probes[{self.compression}]'"
            )
