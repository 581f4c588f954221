"""Sample files of many sorts, for damage: contents, checksums, tables, sizes.

`make_sample` draws the settings that its caller leaves open from a random generator, so
that a seed determines the file. About a third of the files have the default settings,
whose offset table keeps ten free entries for each used one.
"""

from __future__ import annotations

import functools

import blosc
import numpy
from builders import layout, text
from check.cases import frames_of

import bloscpack as bp
from bloscpack.checksums import CHECKSUM_NAMES, CHECKSUMS_LOOKUP

# The more frequent entries are the ones that users choose.
CHECKSUMS = (
    *CHECKSUM_NAMES,
    *["adler32"] * 6,
    *["crc32", "sha256"] * 2,
    *["None"] * 3,
)
CONTENTS = ("text", "random", "numbers", "packed", "array", "equal", "lines")
CHUNK_SIZES = (50, 100, 200, 300, 800)
LARGE_CHUNK_SIZES = (2048, 4096, 16384)


class Sample:
    """A sound file: its bytes, its frames, and how it was made.

    ``older`` are the plain bytes of chunks that the file had before, and that may lie
    behind its last chunk.
    """

    def __init__(self, whole, checksum, description):
        self.whole = whole
        self.checksum = checksum
        self.description = description
        self.older = ()

    @functools.cached_property
    def frames(self):
        """Where each chunk starts, where its digest ends, and its plain bytes."""
        return frames_of(self.whole)

    @property
    def first(self):
        """The offset of the first chunk."""
        return self.frames[0][0]

    @property
    def table(self):
        """The extent of the offset table; it is empty if there is no table."""
        header = self.whole[:32]
        if header[4] != 3 or not header[5] & 1:
            return self.first, self.first
        counts = [int.from_bytes(header[at : at + 8], "little") for at in (16, 24)]
        return self.first - 8 * sum(counts), self.first


def make_sample(pick, *, content=None, nchunks=None, checksum=None, offsets=None):
    """Return a sample; what is not given is drawn from the generator `pick`."""
    content = content or pick.choice(CONTENTS)
    size = pick.choice(CHUNK_SIZES)
    if pick.random() < 0.05:
        size = pick.choice(LARGE_CHUNK_SIZES)
    if nchunks is None:
        nchunks = pick.choice([1, 2, *[pick.randrange(2, 12)] * 4, pick.randrange(30)])
        if pick.random() < 0.01:
            nchunks = pick.randrange(100, 300)
    nbytes = max(1, nchunks) * size - pick.choice([0, 0, 1, 26, size // 2, size - 3])
    default = checksum is None and offsets is not False and pick.random() < 0.35
    if not default and checksum is None and offsets is None and pick.random() < 0.02:
        return _old_sample(pick, nbytes, size)
    checksum = "adler32" if default else checksum or pick.choice(CHECKSUMS)
    if offsets is None:
        offsets = default or pick.random() < 0.5
    table = {}
    if not default:
        table["bloscpack_args"] = bp.BloscpackArgs(offsets, checksum)
        if offsets and pick.random() < 0.5:
            free = pick.randrange(3)
            table["bloscpack_args"] = bp.BloscpackArgs(offsets, checksum, free)
        table["blosc_args"] = bp.BloscArgs(
            typesize=pick.choice([1, 4, 8]),
            cname=pick.choice(["blosclz", "zstd", "lz4"]),
        )
    metadata = pick.choice([None, None, {"unit": "m"}, {"lines": "a\r\nb\n" * 9}])
    whole = _pack(pick, content, nbytes, size, metadata, checksum, table)
    words = "%s, %s, chunks of %d bytes" % (content, checksum, size)
    words += ", default settings" * default + ", table" * offsets
    return Sample(whole, checksum, words + ", metadata" * (metadata is not None))


def _old_sample(pick, nbytes, size):
    """Return a sample of layout 0, 1 or 2, without digests."""
    plain = text(nbytes, pick.random())
    chunks = [plain[at : at + size] for at in range(0, nbytes, size)]
    version = pick.randrange(3)
    sizes = {"chunk_size": len(chunks[0]), "last_chunk": len(chunks[-1])}
    whole = layout(version, chunks, **sizes)
    return Sample(
        whole, "None", "text, layout %d, chunks of %d bytes" % (version, size)
    )


def _pack(pick, content, nbytes, size, metadata, checksum, settings):
    if content == "array":
        array = numpy.arange(nbytes // 8 + 1, dtype="<i8") // 3
        if pick.random() < 0.3:
            array = array.reshape(-1, 1)
        return bp.pack_ndarray_to_bytes(array, chunk_size=size // 8 * 8, **settings)
    plain = make_plain(pick, content, nbytes, checksum)
    return bp.pack_bytes_to_bytes(plain, size, metadata, **settings)


def make_plain(pick, content, nbytes, checksum):
    """Return `nbytes` plain bytes."""
    if content == "random":
        plain = bytearray(pick.randbytes(nbytes))
        for _ in range(pick.choice([0, 0, 1, 4, 20])):
            if nbytes > 2:
                at = pick.randrange(nbytes - 1)
                plain[at : at + 2] = b"\r\n"
        return bytes(plain)
    if content == "packed":
        return _packed_files(pick, nbytes, checksum)
    if content == "lines":
        line = pick.choice([b"\r\n", b"\n"])
        made = b""
        while len(made) < nbytes:
            made += text(pick.randrange(40), pick.random()) + line
        return made[:nbytes]
    if content == "equal":
        # Blosc compresses these bytes to the same extent in each full chunk.
        return bytes(i * i * 31 % 251 for i in range(nbytes))
    if content == "numbers":
        return bytes(i // 7 % 256 for i in range(nbytes))
    return text(nbytes, pick.random())


def _packed_files(pick, nbytes, checksum):
    """Return packed files one behind the other, the last one cut off."""
    if pick.random() < 0.3:
        checksum = "adler32" if checksum == "None" else "None"
    settings = bp.BloscpackArgs(offsets=False, checksum=checksum)
    made = b""
    while len(made) < nbytes:
        plain = pick.randbytes(pick.randrange(1, 200))
        made += bp.pack_bytes_to_bytes(plain, 40, bloscpack_args=settings)
    return made[:nbytes]


def make_frame(sample, plain):
    """Return a chunk and its digest as the file would store them."""
    chunk = blosc.compress(plain, typesize=1)
    return chunk + CHECKSUMS_LOOKUP[sample.checksum](chunk)
