"""`ChunkSource.read_into`: spans of plain bytes, from chunks in a fake source."""

import pytest

from bloscpack._file.array_reader import ChunkSource

PLAIN = bytes(range(23))


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

    def load(self, numbers, use, *, room=None, joined=False):
        for number in numbers:
            plain = memoryview(PLAIN[slice(*self.span(number))])
            place = room(number)
            if place is not None:
                place[:] = plain
                plain = place
                self.in_place.append(number)
            self.loaded.append(number)
            use(number, plain)

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
