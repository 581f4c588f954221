"""The plan of an append: what will change, before anything does."""

from __future__ import annotations

import io
import struct

import pytest
from builders import packed

from bloscpack._format.append_plan import plan_append
from bloscpack._format.chunks import frames_of
from bloscpack._format.sections import read_beginning
from bloscpack._storage.cursor import Cursor
from bloscpack.constants import BLOSCPACK_HEADER_LENGTH
from bloscpack.exceptions import NotEnoughSpace

MEBIBYTE = 2**20


def boundaries(cursor, header):
    """Return where the first chunk starts and where each chunk with digest ends."""
    return [cursor.position, *(cursor.position for _ in frames_of(cursor, header))]


def plan(file_bytes, new_size):
    cursor = Cursor(io.BytesIO(file_bytes))
    beginning = read_beginning(cursor)
    return plan_append(beginning, boundaries(cursor, beginning.header), new_size)


@pytest.mark.parametrize(
    ("old", "new", "first", "sizes", "header"),
    [
        # the last chunk takes all of it: (nchunks, chunk_size, last_chunk, room)
        (2500, 300, 2, [300], (3, 1000, 800, 47)),
        (2500, 500, 2, [500], (3, 1000, 1000, 47)),
        # new chunks follow
        (2500, 501, 2, [500, 1], (4, 1000, 1, 46)),
        (2500, 2500, 2, [500, 1000, 1000], (5, 1000, 1000, 45)),
        (2500, 2700, 2, [500, 1000, 1000, 200], (6, 1000, 200, 44)),
        # the last chunk is full: it is compressed anew, as 0.16.0 did
        (3000, 100, 2, [0, 100], (4, 1000, 100, 46)),
        (2500, 0, 2, [0], (3, 1000, 500, 47)),
        # a single chunk grows, up to what packing everything would have taken
        (400, 100, 0, [100], (1, 500, 500, 49)),
        (1000, 1, 0, [1], (1, 1001, 1001, 49)),
        (400, 2 * MEBIBYTE, 0, [MEBIBYTE - 400, MEBIBYTE, 400], (3, MEBIBYTE, 400, 47)),
        # nothing was there
        (0, 100, 0, [100], (1, 100, 100, 49)),
        (0, MEBIBYTE + 1, 0, [MEBIBYTE, 1], (2, MEBIBYTE, 1, 48)),
        (0, 0, 0, [0], (1, 0, 0, 49)),
    ],
)
def test_plan(old, new, first, sizes, header):
    result = plan(packed(bytes(old), entries=50), new)
    assert first == result.first_chunk
    assert sizes == result.new_sizes
    assert header == (
        result.header.nchunks,
        result.header.chunk_size,
        result.header.last_chunk,
        result.header.max_app_chunks,
    )
    assert None is result.section


def test_plan_starts_at_the_last_chunk():
    file_bytes = packed(bytes(2500), entries=50)
    offset = struct.unpack_from("<q", file_bytes, BLOSCPACK_HEADER_LENGTH + 16)[0]
    assert offset == plan(file_bytes, 10).chunks_offset


def test_plan_does_not_touch_what_it_is_given():
    cursor = Cursor(io.BytesIO(packed(bytes(2500), entries=50)))
    beginning = read_beginning(cursor)
    before = beginning.header.copy()
    plan_append(beginning, boundaries(cursor, beginning.header), 5000)
    assert before == beginning.header


@pytest.mark.parametrize(
    ("room", "new", "fits"),
    [(3, 500, True), (3, 501, False), (4, 1500, True), (4, 1501, False)],
)
def test_plan_knows_the_room(room, new, fits):
    file_bytes = packed(bytes(2500), entries=room)
    if fits:
        assert room == plan(file_bytes, new).header.nchunks
    else:
        with pytest.raises(NotEnoughSpace, match="not enough space"):
            plan(file_bytes, new)
