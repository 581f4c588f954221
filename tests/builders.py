"""Builders of the small files that tests read, change and damage.

A builder returns the bytes of a complete, valid file; a test changes one thing in them.
Settings default to those of the package, except that chunks have 1000 bytes, so that a
few kilobytes make several chunks. A module that needs other defaults binds them with
`functools.partial`.
"""

from __future__ import annotations

import hashlib
import random
import struct

import blosc
import numpy

import bloscpack
from bloscpack.args import BloscpackArgs, MetadataArgs

# A translation that changes every byte.
OTHER = bytes(i ^ 0xA5 for i in range(256))
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


# Files in the middle of a change


def undo_record(
    old: bytes, extents: list[tuple[int, int]], position: int, **fields: object
) -> bytes:
    """Return the undo record, at `position`, of a file that had the content `old`.

    `extents` are pairs of start and stop. `fields` are values that replace the right
    ones: ``length``, ``count``, ``table`` (pairs of start and size), ``rest`` (bytes).
    """
    table = [(start, stop - start) for start, stop in extents]
    given = {
        "length": len(old),
        "count": len(extents),
        "table": table,
        "rest": b"".join(old[start:stop] for start, stop in extents),
        **fields,
    }
    body = struct.pack("<8sqq", b"\xffundo\r\n\x1a", given["length"], given["count"])
    body += b"".join(struct.pack("<qq", *extent) for extent in given["table"])
    body += given["rest"]
    placed = struct.pack("<q", position) + body
    digest = hashlib.blake2b(placed, digest_size=32).digest()
    return body + struct.pack("<q32s8s", len(body), digest, b"\xffundo\r\n\x1a")


def half_changed(
    old: bytes,
    extents: list[tuple[int, int]] | None = None,
    new: bytes = b"new" * 9,
    **fields: object,
) -> bytes:
    """Return a file of the content `old` whose change was interrupted.

    The bytes of the `extents` have been overwritten, except for magic and version; the
    bytes `new` lie behind the old end. `fields` are those of `undo_record`.
    """
    extents = [(0, 32), (len(old) - 40, len(old))] if extents is None else extents
    content = bytearray(old + bytes(16) + new)
    for start, stop in extents:
        content[start:stop] = old[start:stop].translate(OTHER)
    content[:6] = old[:5] + bytes([old[5] | 4])
    return bytes(content + undo_record(old, extents, len(content), **fields))


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
