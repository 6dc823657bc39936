"""Check the spec and the manifest in a sealed file against the digests that cover them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from probes.digest import spec_identity
from probes.errors import FileRefused
from probes.plain_file import plain_object
from probes.proof.finding import Finding
from probes.run_directory.manifest import Manifest, identity

TEXTS = ("spec", "resolved", "manifest", "closing", "gaps")


def check_origin(file: str, texts: Mapping[str, bytes], manifest: Mapping[str, Any], attributes: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the origin that a file states.

    Args:
        file: name of the file, for the findings.
        texts: content of the text datasets by name; those that the file lacks are left out.
        manifest: the parsed manifest; empty where it is not a JSON object.
        attributes: of the file's root.
    """
    if "manifest" in texts and not manifest:
        yield Finding("manifest-edited", file, "the manifest is not a JSON object")
    if not manifest:
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
    """The identity of a resolved spec; empty where the text is none."""
    try:
        return spec_identity(plain_object(resolved), proof)
    except (ValueError, KeyError, TypeError, AttributeError, FileRefused):
        return ""
