"""Kinds of damage to sample files; each byte of a damaged file knows its origin.

`DamagedFile` is a file that kinds of damage change. `KINDS` maps the name of each kind
to a function that draws a sample and the damage from a random generator and returns
the damaged file. `damaged_file` chooses the kind by the seed.
"""

from __future__ import annotations

import random
import re

from check.cases import Case
from check.samples import Sample, make_frame, make_sample

from bloscpack.checksums import CHECKSUMS_LOOKUP

SIZES = (1, 1, 1, 2, 4, 5, 8, 16, 40, 300, 1000)
SECTOR = 512
# Offsets and sizes of the header fields that state sizes and counts.
SIZE_FIELDS = {"chunk_size": (8, 4), "last_chunk": (12, 4), "nchunks": (16, 8)}


class DamagedFile:
    """The bytes of a sample after some changes.

    ``origin`` has the offset in the sample of each byte, -1 if the byte is new.
    ``changes`` describes the changes.
    """

    def __init__(self, sample):
        self.sample = sample
        self.data = bytearray(sample.whole)
        self.origin = [*range(len(sample.whole))]
        self.changes = []

    def replace(self, start, stop, new):
        """Replace the bytes [start, stop) with as many or other bytes `new`."""
        origin = [-1] * len(new)
        if len(new) == stop - start:
            pairs = zip(
                self.data[start:stop], new, self.origin[start:stop], strict=True
            )
            origin = [at if old == byte else -1 for old, byte, at in pairs]
        self.data[start:stop] = new
        self.origin[start:stop] = origin
        self.changes.append((start, stop, "%d bytes" % len(new)))

    def delete(self, start, size):
        """Delete up to `size` bytes."""
        self.replace(start, min(start + size, len(self.data)), b"")

    def insert(self, start, new):
        """Insert new bytes."""
        self.replace(start, start, new)

    def flip(self, at, bit):
        """Change a bit."""
        self.replace(at, at + 1, bytes([self.data[at] ^ 1 << bit]))

    def rearrange(self, spans):
        """Replace the file with a copy of its spans, in this order."""
        data, origin = self.data, self.origin
        self.data = bytearray().join(data[start:stop] for start, stop in spans)
        self.origin = [at for start, stop in spans for at in origin[start:stop]]
        self.changes.append(("rearranged", *spans))


def damaged_file(seed, kind=None):
    """Return the kind of damage that the seed determines, and the damaged file."""
    if kind is None:
        kind = [*KINDS][seed % len(KINDS)]
    return kind, KINDS[kind](random.Random(seed))


# Places


def _place(pick, sample):
    """Return a random offset: anywhere, in the sections or in the chunks."""
    first, end = sample.first, len(sample.whole)
    start, stop = pick.choice([(0, end), (0, first), (first, end), (first, end)])
    return pick.randrange(start, stop)


def _stretch(pick, sample):
    """Return a random stretch; half of them are a number of whole frames."""
    frames = sample.frames
    if pick.random() < 0.5:
        i = pick.randrange(len(frames))
        stop = min(len(frames), i + pick.choice([1, 1, 1, 2, 3]))
        return frames[i][0], frames[stop - 1][1]
    start = _place(pick, sample)
    return start, min(len(sample.whole), start + pick.choice(SIZES))


def _times(pick):
    return range(pick.choice([1, 1, 2, 3]))


# Kinds


def _cut(pick):
    sample = make_sample(pick)
    damaged = DamagedFile(sample)
    start = pick.choice([_place(pick, sample), pick.choice(sample.frames)[1]])
    damaged.delete(start, len(sample.whole))
    return damaged


def _insert(pick):
    damaged = DamagedFile(make_sample(pick))
    for _ in _times(pick):
        new = pick.randbytes(pick.choice(SIZES))
        damaged.insert(
            _place(pick, damaged.sample), pick.choice([new, bytes(len(new))])
        )
    return damaged


def _delete(pick):
    damaged = DamagedFile(make_sample(pick))
    for _ in _times(pick):
        start, stop = _stretch(pick, damaged.sample)
        damaged.delete(min(start, len(damaged.data)), stop - start)
    return damaged


def _overwrite(pick):
    damaged = DamagedFile(make_sample(pick))
    for _ in _times(pick):
        start, stop = _stretch(pick, damaged.sample)
        new = pick.randbytes(stop - start)
        damaged.replace(start, stop, pick.choice([new, new, b"\xff" * len(new)]))
    return damaged


def _repeat(pick):
    sample = make_sample(pick)
    damaged = DamagedFile(sample)
    start, stop = _stretch(pick, sample)
    end = len(sample.whole)
    at = pick.choice([stop, stop, stop, _place(pick, sample), end])
    damaged.rearrange([(0, at), (start, stop), (at, end)])
    return damaged


def _repeat_and_table(pick):
    sample = make_sample(pick, nchunks=pick.randrange(3, 15), offsets=True)
    damaged = DamagedFile(sample)
    start, stop = _stretch(pick, sample)
    end = len(sample.whole)
    damaged.rearrange([(0, stop), (start, stop), (stop, end)])
    damaged.delete(pick.randrange(*sample.table), 1)
    return damaged


def _swap(pick):
    sample = make_sample(pick)
    damaged = DamagedFile(sample)
    (a, b), (c, d) = sorted([_stretch(pick, sample), _stretch(pick, sample)])
    c = max(b, c)
    damaged.rearrange([(0, a), (c, max(c, d)), (b, c), (a, b), (max(c, d), None)])
    return damaged


def _out_of_order(pick):
    """Intact chunks in another order; the last one is often shorter."""
    sample = make_sample(pick, nchunks=pick.randrange(2, 12))
    damaged = DamagedFile(sample)
    spans = [frame[:2] for frame in sample.frames]
    moved = pick.choice(["shuffled", "last", "one"])
    if moved == "shuffled":
        pick.shuffle(spans)
    else:
        span = spans.pop(-1 if moved == "last" else pick.randrange(len(spans)))
        spans.insert(pick.randrange(len(spans) + 1), span)
    if pick.random() < 0.2:
        spans.pop(pick.randrange(len(spans)))
    damaged.rearrange([(0, sample.first), *spans])
    if pick.random() < 0.3 and len(damaged.data) > sample.first:
        damaged.flip(_place(pick, sample) % len(damaged.data), pick.randrange(8))
    return damaged


def _zero_sectors(pick):
    sample = make_sample(pick, nchunks=pick.choice([1, 4, 10, 20, 29]))
    damaged = DamagedFile(sample)
    count = -(-len(sample.whole) // SECTOR)
    for _ in _times(pick):
        start = SECTOR * pick.randrange(count)
        size = pick.choice([1, 1, 1, 2, 4]) * SECTOR
        stop = min(start + size, len(sample.whole))
        damaged.replace(start, stop, bytes(stop - start))
    return damaged


def _text_mode(old, new):
    def convert(pick):
        content = pick.choice([None, "lines", "random", "random"])
        nchunks = pick.choice([None, 1])
        damaged = DamagedFile(make_sample(pick, content=content, nchunks=nchunks))
        for found in reversed([*re.finditer(old, bytes(damaged.data))]):
            damaged.replace(*found.span(), new)
            if len(new) == 2:
                damaged.origin[found.start() + 1] = found.start()
            else:
                damaged.origin[found.start()] = found.start() + 1
        damaged.changes = ["each %r becomes %r" % (old, new)]
        return damaged

    return convert


def _header_and_table(pick):
    sample = make_sample(pick, offsets=True)
    damaged = DamagedFile(sample)
    for _ in range(pick.choice([1, 1, 2])):
        damaged.flip(pick.randrange(4, 32), pick.randrange(8))
    for _ in range(pick.choice([1, 1, 2, 4])):
        damaged.flip(pick.randrange(*sample.table), pick.randrange(8))
    return damaged


def _flip_size(pick, damaged):
    """Change a low bit, or any bit, of a field that states a size or a count."""
    at, size = SIZE_FIELDS[pick.choice([*SIZE_FIELDS])]
    bit = pick.choice([pick.randrange(11), pick.randrange(8 * size)])
    damaged.flip(at + bit // 8, bit % 8)


def _size_and_table(pick):
    """One bit in a size, and one byte more or less in the table."""
    sample = make_sample(pick, offsets=True)
    damaged = DamagedFile(sample)
    how = pick.choice(["insert", "delete", "b[8] ^= 1", "b[9] ^= 4"])
    if how == "b[8] ^= 1":
        damaged.flip(8, 0)
        damaged.insert(40, b"\r")
    elif how == "b[9] ^= 4":
        damaged.flip(9, 2)
        damaged.delete(40, 1)
    else:
        _flip_size(pick, damaged)
        at = pick.randrange(*sample.table)
        if how == "insert":
            damaged.insert(at, pick.choice([b"\r", b"\0", pick.randbytes(1)]))
        else:
            damaged.delete(at, 1)
    return damaged


def _size(pick):
    """Only a wrong size or count in the header; sometimes one chunk is damaged too."""
    sample = make_sample(pick)
    damaged = DamagedFile(sample)
    if len(sample.whole) < 32 or sample.whole[4] < 2:
        damaged.flip(pick.randrange(4, 8), pick.randrange(8))
        return damaged
    _flip_size(pick, damaged)
    if pick.random() < 0.3:
        damaged.flip(pick.randrange(sample.first, len(sample.whole)), pick.randrange(8))
    return damaged


def _as_many_as_a_digest(pick):
    """One chunk without compression that lacks as many bytes as a digest has."""
    checksum = pick.choice(["adler32"] * 4 + ["crc32", "md5", "sha1", "sha256"])
    offsets = pick.choice([None, False])
    nchunks = pick.choice([1, 1, 1, 2])
    settings = {"content": "random", "nchunks": nchunks, "offsets": offsets}
    sample = make_sample(pick, checksum=pick.choice([checksum, None]), **settings)
    damaged = DamagedFile(sample)
    start, stop, _ = sample.frames[0]
    size = CHECKSUMS_LOOKUP[sample.checksum].size
    if pick.random() < 0.5:
        damaged.delete(pick.randrange(start, max(start + 1, stop - size)), size)
    else:
        for _ in range(min(size, stop - start - 16)):
            damaged.delete(pick.randrange(start + 16, stop), 1)
            stop -= 1
    return damaged


def _leftovers(pick):
    """The rest of an older, longer last chunk, or a whole one, behind the last one."""
    sample = make_sample(pick)
    damaged = DamagedFile(sample)
    size = len(sample.frames[0][2])
    older = pick.choice([sample.frames[-1][2], pick.randbytes(size), bytes(size)])
    sample.older = (older,)
    frame = make_frame(sample, older)
    size = pick.randrange(1, len(frame) + 1)
    damaged.insert(len(damaged.data), pick.choice([frame[-size:], frame]))
    if pick.random() < 0.4:
        damaged.flip(_place(pick, sample), pick.randrange(8))
    return damaged


def edited(whole, checksum, description, data, origin):
    """Return a file of which each byte has an origin, None if it is new."""
    damaged = DamagedFile(Sample(whole, checksum, description))
    damaged.data = bytearray(data)
    damaged.origin = [-1 if at is None else at for at in origin]
    return damaged


def edited_case(case):
    """Return a file with the random edits of `check.cases`."""
    return edited(case.whole, case.checksum, str(case), case.damaged, case.origin)


def _edits(pick):
    seed = pick.getrandbits(32)
    return edited_case(Case(seed, mixed=bool(seed % 2)))


KINDS = {
    "cut": _cut,
    "insert": _insert,
    "delete": _delete,
    "overwrite": _overwrite,
    "repeat": _repeat,
    "repeat-and-table": _repeat_and_table,
    "swap": _swap,
    "out-of-order": _out_of_order,
    "zero-sectors": _zero_sectors,
    "lf-to-crlf": _text_mode(b"\n", b"\r\n"),
    "crlf-to-lf": _text_mode(b"\r\n", b"\n"),
    "header-and-table": _header_and_table,
    "size": _size,
    "size-and-table": _size_and_table,
    "digest-size": _as_many_as_a_digest,
    "leftovers": _leftovers,
    "edits": _edits,
}
