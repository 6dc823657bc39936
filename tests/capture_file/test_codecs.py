"""Chunks: small, and one run of elements each."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from probes.capture_file.codecs import LARGEST_CHUNK, chunk_shape, chunks

SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple) | st.sampled_from([(3, 500_000), (1, 1, 300_000), (100_000, 7)])


@given(SHAPES, st.sampled_from([1, 2, 4, 8]))
def test_chunks_are_small_and_cover_the_elements_in_order(shape: tuple[int, ...], itemsize: int) -> None:
    chunk = chunk_shape(shape, itemsize)
    assert prod(chunk) * itemsize <= LARGEST_CHUNK
    at = 0
    for corner, elements in chunks(shape, chunk):
        assert np.ravel_multi_index(corner, shape) == at
        at += elements
    assert at == prod(shape)


@given(SHAPES)
def test_there_is_a_chunk_at_every_corner(shape: tuple[int, ...]) -> None:
    chunk = chunk_shape(shape, 8)
    assert len(list(chunks(shape, chunk))) == prod(-(-size // step) for size, step in zip(shape, chunk, strict=True))
