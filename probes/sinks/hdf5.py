"""One HDF5 file per epoch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from probes.component import Sink


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
