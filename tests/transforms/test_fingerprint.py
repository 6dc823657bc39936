from __future__ import annotations

import pytest
import torch
from blake3 import blake3

from probes.signature import DTYPES, Signature, SignatureError
from probes.testing import check_transform
from tests.old_torch import dtypes_here
from tests.transforms.made import applied, made, same_bits


def test_the_transform_passes_the_conformance_kit_for_every_plain_dtype() -> None:
    check_transform(
        made("fingerprint"),
        dtypes=[name for name in dtypes_here(DTYPES) if "qint" not in name and name not in ("quint8", "float4_e2m1fn_x2", "complex32")],
    )


def test_the_digest_is_that_of_the_bytes() -> None:
    value = torch.randn(3, 5)
    expected = blake3(value.t().contiguous().numpy().tobytes()).digest()
    assert bytes(applied(made("fingerprint"), value.t()).tolist()) == expected


def test_one_changed_bit_changes_the_digest() -> None:
    value = torch.zeros(1000)
    other = value.clone()
    other[500] = -0.0
    assert not same_bits(applied(made("fingerprint"), value), applied(made("fingerprint"), other))


def test_lazy_conjugation_is_part_of_the_value() -> None:
    value = torch.randn(4, dtype=torch.complex64)
    assert same_bits(applied(made("fingerprint"), value.conj()), applied(made("fingerprint"), value.conj().resolve_conj()))


def test_quantized_values_are_refused() -> None:
    with pytest.raises(SignatureError, match="`qint8` is not taken"):
        made("fingerprint").out(Signature("qint8"))
