"""What is read of chunks in fake sources: spans of plain bytes, and items of a grid."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import indexes

from bloscpack._arrays import reader
from bloscpack._arrays.reader import Reader
from bloscpack._arrays.source import ChunkSource
from bloscpack._format.grid import Grid

PLAIN = bytes(range(23))


@pytest.fixture(autouse=True, scope="module")
def all_gaps():
    """Let the smallest gap between selected items count."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(reader, "LEAST_GAP", 1)
        yield


def only_needed(plain, spans):
    """Return plain bytes of which all but those of spans have another value."""
    found = bytearray(byte ^ 0xFF for byte in plain)
    assert sorted(spans) == list(spans)
    for start, stop in spans:
        found[start:stop] = plain[start:stop]
    return memoryview(bytes(found))


class Boxes(ChunkSource):
    """The chunks of a grid, of which `load` gives the needed spans alone."""

    def __init__(self, items, chunk):
        self.cut = self.grid = Grid(items.shape, chunk)
        self.items = items
        self.chunk_size = math.prod(chunk) * items.itemsize
        self.nbytes = self.grid.nchunks * self.chunk_size

    def span(self, number):
        return number * self.chunk_size, (number + 1) * self.chunk_size

    def numbers(self, start, stop):
        return range(start // self.chunk_size, -(-stop // self.chunk_size))

    def load(self, numbers, use, *, room=None, needs=None):
        for number in numbers:
            part = self.items[self.grid.box(number)]
            plain = numpy.zeros(self.grid.chunk, part.dtype)
            plain[tuple(map(slice, part.shape))] = part
            place = room(number) if room is not None else None
            if place is not None:
                place[:] = plain.tobytes()
            else:
                use(number, only_needed(plain.tobytes(), needs(number)))


class Chunks(ChunkSource):
    """Chunks of 5 bytes in memory; `loaded` has the numbers that were loaded."""

    nbytes = len(PLAIN)
    chunk_size = 5

    def __init__(self, kept=()):
        self.kept = kept
        self.loaded = []
        self.in_place = []

    def span(self, number):
        return number * 5, min(number * 5 + 5, self.nbytes)

    def numbers(self, start, stop):
        return range(start // 5, -(-stop // 5))

    def load(self, numbers, use, *, room=None, needs=None):
        for number in numbers:
            plain = PLAIN[slice(*self.span(number))]
            place = room(number) if room is not None else None
            if place is not None:
                place[:] = plain
                self.in_place.append(number)
            else:
                use(number, only_needed(plain, needs(number)))
            self.loaded.append(number)

    def cached(self, number, size):
        return PLAIN[slice(*self.span(number))] if number in self.kept else None


@pytest.mark.parametrize("kept", [(), range(5)])
def test_every_span(kept):
    for start in range(len(PLAIN) + 2):
        for size in range(len(PLAIN) + 3):
            buffer = bytearray(b"\xff" * size)
            expected = PLAIN[start : start + size]
            assert len(expected) == Chunks(kept).read_into(memoryview(buffer), start)
            assert expected.ljust(size, b"\xff") == buffer


def test_whole_chunks_are_loaded_into_the_memory_of_the_caller():
    chunks = Chunks()
    chunks.read_into(memoryview(bytearray(21)), 2)
    assert [0, 1, 2, 3, 4] == chunks.loaded
    assert [1, 2, 3, 4] == chunks.in_place


def test_a_span_in_a_chunk_in_memory_is_not_loaded():
    chunks = Chunks(kept=[3])
    buffer = bytearray(3)
    chunks.read_into(memoryview(buffer), 16)
    assert (PLAIN[16:19], []) == (bytes(buffer), chunks.loaded)


@given(data=st.data())
def test_only_the_needed_bytes_of_the_chunks_of_a_grid_are_used(data):
    items = numpy.arange(210, dtype="<u2").reshape(5, 7, 6)
    chunk = data.draw(st.sampled_from([(2, 3, 2), (5, 1, 6), (1, 4, 4)]))
    reader = Reader(Boxes(items, chunk), items.dtype, items.shape)
    index = data.draw(indexes(items.shape))
    try:
        expected = items[index]
    except IndexError:
        return
    assert expected.tolist() == reader.get(index).tolist()
