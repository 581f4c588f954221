"""Builders of the small files that tests read, change and damage.

A builder returns the bytes of a complete, valid file; a test changes one thing in them.
Settings default to those of the package, except that chunks have 1000 bytes, so that a
few kilobytes make several chunks. A module that needs other defaults binds them with
`functools.partial`.
"""

from __future__ import annotations

import io
import random
import struct

import blosc
import numpy

import bloscpack
from bloscpack._format.append_plan import plan_append
from bloscpack._format.chunks import walk_chunks
from bloscpack._format.sections import read_beginning
from bloscpack._storage.cursor import Cursor
from bloscpack.args import BloscpackArgs, MetadataArgs

WORDS = b"size codec chunk digest offset extent span section "


# Plain bytes


def numbers(nbytes: int, seed: int = 1) -> bytes:
    """Return bytes that Blosc makes much smaller."""
    return (numpy.arange(nbytes, dtype="u4") // 3 * seed).astype("u1").tobytes()


def text(nbytes: int, seed: float = 1) -> bytes:
    """Return random letters of a few words, which Blosc makes a little smaller."""
    generator = random.Random(seed)
    return bytes(generator.choice(WORDS) for _ in range(nbytes))


# Files in the current layout


def packed(
    plain: bytes,
    chunk_size: int | str = 1000,
    metadata: object = None,
    *,
    checksum: str = "adler32",
    offsets: bool = True,
    entries: int | None = None,
    free_entries: int | None = None,
    meta_checksum: str = "adler32",
    metadata_room: object = None,
    **options: object,
) -> bytes:
    """Return a file that holds `plain`.

    The offset table has `free_entries` free entries, or `entries` used and free ones
    together. `metadata_room` is the number of bytes reserved for metadata, or a
    function of their size. Other `options` are those of `pack_bytes_to_bytes`.
    """
    if entries is not None:
        free_entries = entries - max(1, -(-len(plain) // chunk_size))
    table = {} if free_entries is None else {"max_app_chunks": free_entries}
    options.setdefault("bloscpack_args", BloscpackArgs(offsets, checksum, **table))
    room = {} if metadata_room is None else {"max_meta_size": metadata_room}
    options.setdefault(
        "metadata_args", MetadataArgs(meta_checksum=meta_checksum, **room)
    )
    return bloscpack.pack_bytes_to_bytes(plain, chunk_size, metadata, **options)


def unpacked(data: bytes) -> bytes:
    """Return the plain bytes that a file holds."""
    return bloscpack.unpack_bytes_from_bytes(data)[0]


def described(
    plain: bytes, dtype: object = "<f8", shape: object = (2,), **others: object
) -> bytes:
    """Return a file whose metadata say, rightly or wrongly, what array `plain` is.

    `others` are further metadata; a value of ``...`` leaves the key out.
    """
    metadata = {"dtype": dtype, "shape": shape, "order": "C", "container": "numpy"}
    metadata.update(others)
    given = {key: value for key, value in metadata.items() if value is not ...}
    return packed(plain, metadata=given)


# What an append to a file changes


def planned_append(
    content: bytes, nbytes: int
) -> tuple[list[tuple[int, int]], bytes, tuple[int, int]]:
    """Return the extents, the new head and the witness of an append to a file."""
    cursor = Cursor(io.BytesIO(content))
    beginning = read_beginning(cursor)
    ends = walk_chunks(cursor, beginning.header)
    plan = plan_append(beginning, ends, nbytes)
    unchanged = ends[0], plan.chunks_offset
    return plan.extents(len(content)), plan.header.encode(), unchanged


# Files in any layout


def layout(
    version: int,
    chunks: list[bytes],
    *,
    nchunks: int | None = None,
    chunk_size: int = -1,
    last_chunk: int = -1,
) -> bytes:
    """Return a file of any layout without digests, offsets and metadata."""
    nchunks = len(chunks) if nchunks is None else nchunks
    if version == 0:
        header = struct.pack("<4sI", b"blpk", nchunks)
    elif version == 1:
        header = struct.pack("<4sB3sq", b"blpk", 1, bytes(3), nchunks)
    else:
        sizes = (chunk_size, last_chunk, nchunks, 0)
        header = struct.pack("<4sBBBBiiqq", b"blpk", version, 0, 0, 8, *sizes)
    return header + b"".join(blosc.compress(chunk, typesize=8) for chunk in chunks)


def prose(nbytes: int) -> bytes:
    """Return words of different lengths and frequencies."""
    rng = numpy.random.default_rng(1)
    letters = rng.choice(list("etaoinshr"), (2000, 6))
    words = ["".join(row[: 2 + i % 5]) for i, row in enumerate(letters)]
    chosen = numpy.minimum(rng.zipf(1.3, nbytes // 4) - 1, len(words) - 1)
    return " ".join([words[i] for i in chosen]).encode()[:nbytes]
