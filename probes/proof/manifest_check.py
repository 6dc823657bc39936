"""Check the spec and the manifest in a sealed file against the digests that cover them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic import ValidationError

from probes.digest import blake3_hex, canonical, spec_identity
from probes.errors import FileRefused
from probes.plain_file import plain_object
from probes.proof.finding import Finding
from probes.run_directory.manifest import Manifest, identity, newer_format

TEXTS = ("spec", "resolved", "manifest", "closing", "gaps")
KEPT_BYTES = 4 << 20  # limit of texts whose results are cached; parsed, they need about ten times as much


class ReadManifest(NamedTuple):
    """The manifest in a file.

    Attributes:
        data: plain data; empty if the text is not a JSON object.
        digest: BLAKE3 of its canonical JSON, so that `1`, `1.0` and `true` are three values.
    """

    data: dict[str, Any]
    digest: str


class CheckedOrigins:
    """A cache of manifests and their findings: the files of a run have the same bytes, which are checked once."""

    def __init__(self) -> None:
        self._manifests: dict[bytes, ReadManifest] = {}
        self._findings: dict[tuple[object, ...], tuple[Finding, ...]] = {}
        self._bytes = 0

    def manifest(self, text: bytes | None) -> ReadManifest:
        """Parse a manifest."""
        found = self._manifests.get(text or b"")
        if found is None:
            try:
                data = plain_object(text or b"null")
            except ValueError:
                data = {}
            found = ReadManifest(data, blake3_hex(canonical(data)))
            self._make_room(len(text or b""))
            self._manifests[text or b""] = found
        return found

    def findings(self, file: str, texts: Mapping[str, bytes], attributes: Mapping[str, Any]) -> list[Finding]:
        """The findings on the origin that a file states; see `check_origin`."""
        of = *(texts.get(name) for name in ("manifest", "resolved", "spec")), repr(attributes.get("rank"))
        found = self._findings.get(of)
        if found is None:
            found = tuple(check_origin(file, texts, self.manifest(texts.get("manifest")).data, attributes))
            self._make_room(sum(len(text) for text in of if isinstance(text, bytes)))
            self._findings[of] = found
        return [replace(one, file=file) for one in found]

    def _make_room(self, size: int) -> None:
        """Clear the cache if the texts need too much memory."""
        self._bytes += size
        if self._bytes > KEPT_BYTES:
            self._manifests.clear()
            self._findings.clear()
            self._bytes = size


def check_origin(file: str, texts: Mapping[str, bytes], manifest: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the origin that a file states.

    Args:
        file: name of the file, for the findings.
        texts: content of the text datasets by name; those that the file lacks are left out.
        manifest: the parsed manifest; empty if it is not a JSON object.
        attributes: of the file's root.
    """
    if "manifest" in texts and not manifest:
        yield Finding("manifest-edited", file, "the manifest is not a JSON object")
    if not manifest:
        return
    newer = newer_format(manifest)
    if newer:
        yield Finding("newer-format", file, f"the manifest in it has {newer}")
        return
    try:
        found = Manifest.model_validate(manifest)
    except ValidationError as error:
        yield Finding("manifest-edited", file, f"the manifest does not fit its schema: {error.errors()[0]['msg']}")
        return
    follows = identity(found).model_copy(update={"spec": _of_spec(texts.get("resolved", b""), found.proof)})
    wrong = sorted(name for name, value in follows if value != getattr(found.identity, name))
    if wrong:
        listed = " and ".join(f"`identity.{name}`" for name in wrong)
        yield Finding("manifest-edited", file, f"{listed} of the manifest does not follow from what it is of")
    if found.spec.identity != found.identity.spec:
        yield Finding("manifest-edited", file, "`spec.identity` of the manifest is not its `identity.spec`")
    if found.rank != attributes.get("rank"):
        yield Finding("manifest-edited", file, f"the manifest has rank {found.rank}, the file has rank {attributes.get('rank')}")
    for name, stated in (("spec", found.spec.sha256), ("resolved", found.spec.resolved_sha256)):
        if sha256(texts.get(name, b"")).hexdigest() != stated:
            yield Finding("spec-edited", file, f"the SHA-256 of `{name}` is not the one in the manifest")


def _of_spec(resolved: bytes, proof: str) -> str:
    """The identity of a resolved spec; empty if the text is not one."""
    try:
        return spec_identity(plain_object(resolved), proof)
    except (ValueError, KeyError, TypeError, AttributeError, FileRefused):
        return ""
