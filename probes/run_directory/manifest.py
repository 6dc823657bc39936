"""The contents of `run.json`: the origin of a run, as plain data that is read without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from probes.digest import Proof, blake3_hex, canonical

FORMATS = ("manifest.v1",)
MODULUS, LANES = (1 << 61) - 1, 2  # a sum of the elements of a tensor is a number below this for each lane (`schemas/weights.v1.md`)
DIGITS = 16  # of each, hexadecimal


class ManifestRecord(BaseModel):
    """A part of the manifest: immutable, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)  # most readers never use the manifest


class FileRecord(ManifestRecord):
    """A file that was read."""

    name: str = Field(description="The file as it was named, with the home directory written `~`.")
    sha256: str = Field(description="SHA-256 of its bytes.")


class PluginRecord(ManifestRecord):
    """A component that came from another distribution."""

    kind: str = Field(description="The kind as the spec names it.")
    distribution: str = Field(description="Name of the distribution that brought it.")
    version: str = Field(description="Version of that distribution.")
    file: FileRecord = Field(description="The source file of the component.")


class SpecRecord(ManifestRecord):
    """The spec of the run; files next to the manifest contain its bytes and the resolved spec."""

    name: str = Field(description="Name of the spec.")
    sha256: str = Field(description="SHA-256 of the bytes stored.")
    resolved_sha256: str = Field(description="SHA-256 of the resolved spec in canonical JSON.")
    identity: str = Field(description="BLAKE3 of the resolved spec without what does not change a capture.")
    files: tuple[FileRecord, ...] = Field(description="Every file that was read to make the spec.")
    overrides: tuple[str, ...] = Field(description="Overrides of `--set`, in order, values of secret names written `***`.")
    probes: tuple[str, ...] = Field(description="Names of the probes in the order of the spec.")
    edits: tuple[str, ...] = Field(description="Names of the probes that rewrite what they see.")
    plugins: tuple[PluginRecord, ...] = Field(default=(), description="Components that other distributions brought.")


class ModuleRecord(ManifestRecord):
    """One module of the tree."""

    path: str = Field(description="Canonical path; empty for the root.")
    type: str = Field(description="Class with its module.")
    same_as: str | None = Field(default=None, description="The path this module was first met at, if it is met again.")


class ShardingRecord(ManifestRecord):
    """The layout of a distributed tensor on the ranks of its mesh."""

    placements: tuple[str, ...] = Field(description="One for each dimension of the mesh: `S(0)`, `S(0, 2)` (strided), `R` or `P(sum)`.")
    mesh_shape: tuple[int, ...] = Field(description="Sizes of the mesh.")
    coordinate: tuple[int, ...] = Field(description="Place of this rank in the mesh.")


class TensorRecord(ManifestRecord):
    """One parameter or buffer."""

    name: str = Field(description="Canonical path.")
    role: Literal["parameter", "buffer"] = Field(description="Whether it is a parameter or a buffer.")
    dtype: str = Field(description="Torch's name of the dtype, without prefix.")
    shape: tuple[int, ...] = Field(description="Sizes.")
    trained: bool = Field(description="Whether it requires a gradient.")
    same_as: str | None = Field(default=None, description="The name this tensor was first met under, if it is met again.")
    digest: str | None = Field(
        default=None, description="BLAKE3 of its bytes that this rank holds, little-endian and contiguous, if requested."
    )
    sum: str | None = Field(
        default=None, description="Sum of the elements that this rank holds by their places in the whole (`schemas/weights.v1.md`)."
    )
    sharding: ShardingRecord | None = Field(default=None, description="Which part this rank holds; null if it holds the whole.")


class ModelRecord(ManifestRecord):
    """One probed model."""

    name: str = Field(description="Name of the model in the spec; empty if there is only one.")
    type: str = Field(description="Class with its module.")
    modules: tuple[ModuleRecord, ...] = Field(description="The module tree, parents first, in the order of registration.")
    tensors: tuple[TensorRecord, ...] = Field(description="Parameters and buffers, in the order of the tree.")

    @property
    def structure(self) -> str:
        """BLAKE3 of the module tree and the tables of tensors, without what is in the tensors."""
        modules = [[module.path, module.type, module.same_as] for module in self.modules]
        tensors = [[one.name, one.role, one.dtype, one.shape, one.trained, one.same_as] for one in self.tensors]
        return blake3_hex(canonical({"modules": modules, "tensors": tensors}))


class WeightsRecord(ManifestRecord):
    """The tensors of one model at the end of an epoch, in the closing record of its file."""

    name: str = Field(description="Name of the model in the spec; empty if there is only one.")
    tensors: tuple[TensorRecord, ...] = Field(description="Parameters and buffers, in the order of the tree.")


class GitRecord(ManifestRecord):
    """The state of the script's repository."""

    commit: str = Field(description="Hash of the commit.")
    branch: str | None = Field(description="Name of the branch; null if none is checked out.")
    dirty: bool = Field(description="Whether a tracked file differs from the commit.")
    diff: FileRecord | None = Field(
        default=None, description="The difference, saved next to the manifest; secrets in it are written `***`."
    )
    untracked: tuple[str, ...] = Field(
        default=(), description="Python files in the folder of the script or below that git does not know, at most 100."
    )


class CodeRecord(ManifestRecord):
    """The script and its version."""

    script: str | None = Field(description="Script or `-m` module as it was given, with the home directory written `~`.")
    sha256: str | None = Field(description="SHA-256 of the script.")
    argv: tuple[str, ...] = Field(description="The script's arguments, home written `~`, values of secret options written `***`.")
    argv_sha256: str = Field(description="SHA-256 of the arguments as recorded, in canonical JSON.")
    directory: str = Field(description="Working directory at the start of the command, home written `~`.")
    automatic: bool = Field(description="Whether `probes run` attached the probes; else the script does so itself.")
    candidate: int | None = Field(
        default=None,
        description="Which model that fits the spec was captured, from 0 in the order of their first calls; null if the model was given.",
    )
    git: GitRecord | None = Field(default=None, description="The git repository; null without one.")
    modules: tuple[FileRecord, ...] | None = Field(
        default=None,
        description="Files, or archives, of imported modules that no installed package has, by name; null in runs that did not look.",
    )
    sources: FileRecord | None = Field(
        default=None, description="Zip file of their sources next to the manifest; secrets are written `***`."
    )

    @property
    def digest(self) -> str:
        """BLAKE3 of what ran: script, commit, uncommitted changes, and imported modules if the run has looked at them."""
        diff = self.git.diff.sha256 if self.git and self.git.diff else None
        ran: dict[str, Any] = {"script": self.sha256, "commit": self.git.commit if self.git else None, "diff": diff}
        if self.modules is not None:
            ran["modules"] = [[one.name, one.sha256] for one in self.modules]
        return blake3_hex(canonical(ran))


class EnvironmentRecord(ManifestRecord):
    """The environment on which the numbers of a run depend, besides code, spec and weights; all of it is digested."""

    python: str = Field(description="Version of Python.")
    torch: str = Field(description="Version of PyTorch with its local part.")
    torch_commit: str | None = Field(description="The commit PyTorch was built from.")
    cuda: str | None = Field(description="Version of CUDA or ROCm PyTorch was built for.")
    cudnn: int | None = Field(description="Version of cuDNN.")
    numpy: str | None = Field(description="Version of numpy.")
    device: str = Field(description="Kind and model of the device that holds the weights.")
    cpu: str = Field(description="Architecture and vector instructions that PyTorch uses.")
    threads: int = Field(description="Threads inside an operator.")
    interop_threads: int = Field(description="Threads between operators.")
    deterministic: str = Field(description="`torch.use_deterministic_algorithms`: off, warn or on.")
    cudnn_deterministic: bool = Field(description="`torch.backends.cudnn.deterministic`.")
    cudnn_benchmark: bool = Field(description="`torch.backends.cudnn.benchmark`.")
    matmul_precision: str | None = Field(description="`torch.get_float32_matmul_precision()`.")
    tf32: dict[str, bool | None] = Field(description="Whether TF32 is allowed for matmul and for cuDNN.")
    autocast: str | None = Field(description="The autocast dtype if it is on at the start.")
    world: int = Field(description="Number of processes.")
    default_dtype: str | None = Field(default=None, description="`torch.get_default_dtype()`, null in runs of 0.1.")
    sdp: dict[str, bool] | None = Field(default=None, description="Enabled backends of scaled dot product attention; null in runs of 0.1.")
    variables: dict[str, str] | None = Field(
        default=None,
        description="Environment variables that numbers can depend on, of a fixed list; null in runs of 0.1.",
    )

    @property
    def digest(self) -> str:
        """BLAKE3 of this record, as its manifest states it: runs of release 0.1 lack keys."""
        return blake3_hex(canonical(self.model_dump(mode="json", exclude_unset=True)))


class RandomRecord(ManifestRecord):
    """The random generators at the start."""

    torch_seed: int = Field(description="`torch.initial_seed()`.")
    digests: dict[str, str] = Field(description="BLAKE3 of each generator's state: torch, cuda:N, python, numpy.")


class Identity(ManifestRecord):
    """The digests that enter every epoch root."""

    spec: str = Field(description="Identity of the spec.")
    structure: str = Field(description="Structure of the models.")
    weights: str | None = Field(description="Weights of the models at the start; null if not requested.")
    code: str = Field(description="Script, commit, uncommitted changes and imported modules.")
    environment: str = Field(description="The environment record.")


class Manifest(ManifestRecord):
    """The origin of a run."""

    format: Literal["manifest.v1"] = Field(description="Name and version of this format.")
    algorithm: Literal["blake3"] = Field(description="Algorithm of every digest that does not carry another name.")
    proof: Proof = Field(default="proof.v1", description="Version of the proof that `identity.spec` is of.")
    probes: str = Field(description="Version of this package.")
    run_id: str = Field(description="Name of the run.")
    started: str = Field(description="When the run started, UTC.")
    rank: int = Field(description="Rank of the process.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of `--tag`, values of secret names written `***`.")
    identity: Identity = Field(description="The digests that enter every epoch root.")
    spec: SpecRecord = Field(description="The spec.")
    models: tuple[ModelRecord, ...] = Field(description="The probed models.")
    plan: dict[str, Any] = Field(default_factory=dict, description="The bindings of every probe.")
    code: CodeRecord = Field(description="Script and version.")
    environment: EnvironmentRecord = Field(description="Environment on which the numbers depend.")
    machine: str = Field(description="Operating system, its version and the processor; no name of the host.")
    torch_build: str = Field(description="`torch.__config__.show()`.")
    packages: dict[str, str] = Field(description="Installed distributions and their versions.")
    random: RandomRecord = Field(description="Random generators at the start.")
    data: dict[str, str] = Field(default_factory=dict, description="Digests of data sets, as the caller gave them.")
    launch: str | None = Field(default=None, description="SHA-256 of the launch file of this start; null if it has none.")
    unknown: dict[str, str] = Field(default_factory=dict, description="Facts that could not be determined, and why.")

    def text(self) -> str:
        """The manifest as `run.json` stores it."""
        return written(self.model_dump(mode="json"))


def newer_format(data: Mapping[str, Any]) -> str:
    """The format of a manifest that a later release wrote, in words; an empty text if this release knows it."""
    for name, known in (("format", FORMATS), ("proof", get_args(Proof))):
        found = data.get(name)
        if isinstance(found, str) and found not in known and re.fullmatch(rf"{known[0][:-1]}[0-9]+", found):
            return f'the {name} "{found}"; this release reads "{known[-1]}"'
    return ""


def check_shape(data: dict[str, Any]) -> None:
    """Refuse a manifest with a part that is not of its type; parts may be missing, and unknown ones are ignored.

    Raises:
        ValueError: a part is of another type than the schema says.
    """
    for name in Manifest.model_fields:
        if name in data:
            try:
                _adapter(name).validate_python(data[name], strict=False)
            except ValidationError as error:
                raise ValueError(f"`{name}` does not fit the schema: {error.errors()[0]['msg']}") from error


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    kind: Any = Manifest.model_fields[name].annotation
    return TypeAdapter(kind)


def written(data: Any) -> str:
    """Plain data in the canonical form of `run.json`."""
    return json.dumps(data, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def combined(digests: dict[str, str]) -> str:
    """BLAKE3 of the digests of several models by their names, in canonical JSON."""
    return blake3_hex(canonical(digests))


def weights_of_models(models: Iterable[ModelRecord | WeightsRecord]) -> str | None:
    """The digest of the names, dtypes, shapes and digests of all tensors of some models; None if a tensor was not digested."""
    found = list(models)
    if any(one.digest is None for model in found for one in model.tensors if one.same_as is None):
        return None
    rows = {model.name: sorted([one.name, one.dtype, one.shape, one.digest] for one in model.tensors) for model in found}
    return combined({name: blake3_hex(canonical(of)) for name, of in rows.items()})


def sum_text(lanes: Sequence[int]) -> str:
    """A sum as manifests state it: 16 hexadecimal digits for each lane."""
    return "".join(f"{lane:0{DIGITS}x}" for lane in lanes)


def identity(manifest: Manifest) -> Identity:
    """The identity that follows from the rest of a manifest; weights are null if a tensor was not digested."""
    return Identity(
        spec=manifest.spec.identity,
        structure=combined({model.name: model.structure for model in manifest.models}),
        weights=weights_of_models(manifest.models),
        code=manifest.code.digest,
        environment=manifest.environment.digest,
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the manifest, as stored in `schemas/manifest.v1.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema(mode="serialization")}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
