"""Fuzzing of chunks: decompressed between pages of memory that nobody may touch.

Whatever a chunk says, Blosc must neither read behind its end nor write outside of the
room that it was given: the process would end at once.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import random
import zlib
from pathlib import Path

import blosc
from fuzz import parts
from fuzz.outcomes import Broken, outcome

from bloscpack._engine import blosc_settings
from bloscpack._format import blosc_header, chunks
from bloscpack._format.block_table import BlockRow

# The largest chunk, compressed or not, that is tried.
ROOM = 2**17
SIZES = (0, 1, 7, 100, 1000, 5000, 40000)
TYPESIZES = (1, 2, 4, 8, 16, 17, 255)
CODECS = ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
FORBIDDEN = 0  # PROT_NONE


class Guarded:
    """Memory with a forbidden page in front and another one behind."""

    def __init__(self) -> None:
        page = mmap.PAGESIZE
        self._memory = mmap.mmap(-1, ROOM + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for guard in (start, start + page + ROOM):
            if protect(guard, page, FORBIDDEN):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._room = memoryview(self._memory)[page : page + ROOM]

    def at_the_end(self, size: int) -> memoryview:
        """Return so many bytes right in front of the second page."""
        return self._room[ROOM - size :]

    def at_the_start(self, size: int) -> memoryview:
        """Return so many bytes right behind the first page."""
        return self._room[:size]


@functools.cache
def memory() -> tuple[Guarded, Guarded]:
    """Return where chunks are and where their plain bytes go."""
    return Guarded(), Guarded()


def run(data: bytes, folder: Path) -> object:
    """Decompress the chunk `data`; return its plain bytes, or the error."""
    header = outcome(blosc_header.decode_header, data)
    if isinstance(header, Exception):
        return header
    if max(header.nbytes, len(data)) > ROOM:
        return ValueError("too large to be tried")
    source, target = memory()
    place = Guarded.at_the_end if zlib.crc32(data) % 2 else Guarded.at_the_start
    compressed = place(source, len(data))
    compressed[:] = data
    results = []
    for fill in (b"\0", b"\xff"):
        plain = place(target, header.nbytes)
        plain[:] = fill * header.nbytes
        with blosc_settings.own_settings:
            done = outcome(chunks.decompress_into, compressed, plain)
        results.append(done if isinstance(done, Exception) else bytes(plain))
    with blosc_settings.own_settings:
        results.append(outcome(chunks.decompress, bytes(data)))
    if compressed != data:
        raise Broken("the chunk itself was changed")
    read_alone(data, header)
    if len({isinstance(result, Exception) for result in results}) > 1:
        raise Broken("read once, refused once: %.300r" % (results,))
    return results[0]


def read_alone(data: bytes, header: blosc_header.BloscHeader) -> None:
    """Read each block of a chunk by a row that has right digests of it."""
    row = BlockRow.of_chunk(data) if header.ctbytes == len(data) else None
    if row is not None:
        row = BlockRow.decode(row.raw, header.nbytes, len(data))
    if row is None or row.start + len(data) > ROOM:
        return
    source, target = memory()

    def read(view: memoryview, position: int) -> int:
        part = data[position : position + len(view)]
        view[: len(part)] = part
        return len(part)

    place = Guarded.at_the_end if len(data) % 2 else Guarded.at_the_start
    room = functools.partial(place, source)
    with blosc_settings.own_settings:
        for block in range(len(row.ends)):
            plain, runs = place(target, header.nbytes), [(block, block + 1)]
            outcome(chunks.read_blocks, read, room, row, runs, plain)


# What the bytes are


@functools.cache
def seeds() -> list[bytes]:
    """Return chunks of all codecs, of many sizes and of one or more blocks."""
    found = []
    rng = random.Random(1)
    for size, codec, shuffle in itertools.product(SIZES, CODECS, (0, 1, 2)):
        numbers = (i // 3 for i in range(size))
        plain = bytes(number % 256 for number in numbers)
        typesize = rng.choice(TYPESIZES)
        blosc.set_blocksize(rng.choice((0, 0, 256, 1024)))
        level = rng.choice((0, 1, 5, 9))
        found.append(blosc.compress(plain, typesize, level, shuffle, codec))
    blosc.set_blocksize(0)
    return found


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a chunk with some numbers or bytes changed, its length mostly right."""
    data = rng.choice(seeds())
    chunk = parts.Chunk(parts.decode(parts.CHUNK, data), data[16:])
    for _ in range(1 + rng.randrange(3)):
        kind = rng.randrange(4)
        if kind == 0:
            name = rng.choice(("flags", "typesize", "nbytes", "blocksize", "ctbytes"))
            chunk.record[name] = parts.other_number(
                chunk.record[name], parts.CHUNK[name], rng.randrange
            )
        elif kind == 1 and len(chunk.rest) >= 8:
            # Where a block starts, or how long a part of it is.
            i = rng.randrange(min(len(chunk.rest), 200) - 3)
            number = rng.choice((0, -1, len(data), rng.randrange(300), 2**31 - 1))
            field = number.to_bytes(4, "little", signed=True)
            chunk.rest = chunk.rest[:i] + field + chunk.rest[i + 4 :]
        else:
            chunk.rest = parts.changed_text(chunk.rest, rng.randrange)
    if rng.randrange(8):
        chunk.record["ctbytes"] = len(chunk.rest) + parts.size_of(parts.CHUNK)
    return chunk.join()
