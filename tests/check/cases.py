"""Random damage to small files, and what a recovery of one has to hold.

`Case` makes a file and damages it; `failures` recovers it, and tells what is wrong with
the result. Every byte of the damaged file knows where it was, so that it is known which
chunks are untouched.
"""

from __future__ import annotations

import io
import random

import blosc
import numpy
from builders import text

import bloscpack as bp
from bloscpack.checksums import CHECKSUM_NAMES, CHECKSUMS_LOOKUP
from bloscpack.exceptions import FormatError
from bloscpack.file_io import CompressedBytesSource
from bloscpack.recover import recover_fp
from bloscpack.serializers import replaced_metadata, user_metadata
from bloscpack.verify import verify_fp

# Where the metadata of a recovered file have its note.
KEY = "bloscpack_recovered"
EDIT_SIZES = (1, 1, 5, 16, 40, 300, 1000)


def frames_of(data):
    """Return where each chunk starts, where its digest ends, and its plain bytes."""
    source = CompressedBytesSource(data)
    frames = []
    for compressed, digest in source:
        stop = source.chunk_offset + len(compressed) + len(digest)
        frames.append((source.chunk_offset, stop, blosc.decompress(bytes(compressed))))
    return frames


def inserted(data, at, new):
    return data[:at] + new + data[at:]


def deleted(data, at, size=1):
    return data[:at] + data[at + size :]


def flipped(data, at, bit=0):
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def changed(data, changes, seed):
    """Return damaged bytes, and for each where it was, None if it is new."""
    generator = random.Random(seed)
    found, origin = bytearray(data), [*range(len(data))]
    for what, start, size in changes:
        stop = min(start + size, len(found))
        new = b"" if what == "out" else generator.randbytes(size)
        if what == "in":
            stop = start
        found[start:stop] = new
        origin[start:stop] = [None] * len(new)
    return bytes(found), origin


def untouched(frames, origin):
    """Return the numbers of the chunks all bytes of which are there, side by side."""
    place_of = {at: i for i, at in enumerate(origin) if at is not None}
    return [
        i
        for i, (start, stop, _) in enumerate(frames)
        if start in place_of
        and [*range(start, stop)] == origin[place_of[start] :][: stop - start]
    ]


class Case:
    """A file with random contents, and random damage to it, both told by a number.

    `mixed` says that packed files within may have digests where this has none, and the
    other way round.
    """

    def __init__(self, seed, mixed=False):
        pick = random.Random(seed)
        self.seed = seed
        self.mixed = mixed
        self.checksum = pick.choice([*CHECKSUM_NAMES, "adler32", "adler32", "None"])
        self.offsets = pick.random() < 0.5
        self.chunk_size = pick.choice([50, 100, 200, 300, 800])
        size = pick.randrange(1, 10) * self.chunk_size + pick.choice([0, 1, 24, 50])
        self.content = pick.choice(["text", "random", "numbers", "array", "packed"])
        self.whole = self._pack(size, pick)
        self.changes = []
        first = frames_of(self.whole)[0][0]
        start = pick.choice([0, first, first])
        for _ in range(pick.randrange(1, 4)):
            at = pick.randrange(start, len(self.whole))
            what = pick.choice(["over", "out", "in"])
            self.changes.append((what, at, pick.choice(EDIT_SIZES)))
        self.damaged, self.origin = changed(self.whole, self.changes, seed)

    def _pack(self, size, pick):
        settings = {
            "bloscpack_args": bp.BloscpackArgs(
                checksum=self.checksum, offsets=self.offsets
            ),
            "blosc_args": bp.BloscArgs(
                typesize=pick.choice([1, 4, 8]), cname=pick.choice(["blosclz", "zstd"])
            ),
        }
        if self.content == "array":
            array = numpy.arange(size // 8 + 1, dtype="<i8") // 3
            return bp.pack_ndarray_to_bytes(
                array, chunk_size=self.chunk_size // 8 * 8, **settings
            )
        plain = {
            "text": lambda: text(size, pick.random()),
            "random": lambda: pick.randbytes(size),
            "numbers": lambda: bytes(i // 7 % 256 for i in range(size)),
            "packed": lambda: self._nested(size, pick),
        }[self.content]()
        metadata = pick.choice([None, None, {"unit": "m"}])
        return bp.pack_bytes_to_bytes(plain, self.chunk_size, metadata, **settings)

    def _nested(self, size, pick):
        """Return packed files one behind the other."""
        made = b""
        checksum = self.checksum
        if self.mixed:
            checksum = "None" if checksum != "None" else pick.choice(CHECKSUM_NAMES)
        settings = bp.BloscpackArgs(offsets=False, checksum=checksum)
        while len(made) < size:
            plain = pick.randbytes(pick.randrange(1, 200))
            made += bp.pack_bytes_to_bytes(plain, 40, bloscpack_args=settings)
        return made[:size]

    def _hidden(self):
        """Return what may fail if packed files hide behind chunks without digests."""
        return {"lost", "displaced", "nothing"} if self.content == "packed" else set()

    def _is_cut_behind_a_chunk(self):
        """Return whether the file is cut off where a chunk and its digest end."""
        if self.origin[-1] == len(self.whole) - 1:
            return False
        digest_size = CHECKSUMS_LOOKUP[self.checksum].size
        end = len(self.damaged) - digest_size
        return any(
            self.damaged.startswith(b"\2\1", at)
            and int.from_bytes(self.damaged[at + 12 : at + 16], "little") == end - at
            for at in range(end - 15)
        )

    def excused(self):
        """Return the failures that nothing in the file could have prevented.

        If header and all chunks are damaged, nobody knows that there are digests. If
        there are none and the header is lost, chunks are known by touching each other.
        Without digests, packed files within chunks that are damaged unnoticed take in
        what follows. With them, chunks of such a file can be told from those around
        them only by their size, which is known by an intact chunk or the header. One
        at the end may be the last chunk, whose size only the header tells. Where there
        is but one chunk, and as many bytes are missing as a digest has, it may have had
        none.
        """
        header_is_whole = [*range(32)] == self.origin[:32]
        if not header_is_whole and not untouched(frames_of(self.whole), self.origin):
            return {"foreign"}
        if self.checksum == "None" and not header_is_whole:
            return {"nothing", *self._hidden()}
        missing = len(self.whole) - len(self.damaged)
        only_one = len(frames_of(self.whole)) == 1
        if only_one and missing == CHECKSUMS_LOOKUP[self.checksum].size:
            return {"foreign"}
        if self.content != "packed":
            return set()
        if self.checksum == "None":
            return self._hidden()
        if self._is_cut_behind_a_chunk():
            return {"foreign"}
        frames = frames_of(self.whole)
        numbers = [i for i in untouched(frames, self.origin) if i < len(frames) - 1]
        return set() if numbers and header_is_whole else {"foreign"}

    def __str__(self):
        return "seed %d%s: %s, %s, chunks of %d bytes, offsets %s: %s" % (
            self.seed,
            ", mixed" * self.mixed,
            self.content,
            self.checksum,
            self.chunk_size,
            self.offsets,
            self.changes,
        )


def recovered_and_verified(damaged, **options):
    """Return the new file, which is sound, what verifying and what recovering told."""
    out_fp = io.BytesIO()
    recovery = recover_fp(io.BytesIO(damaged), out_fp, nthreads=1, **options)
    new = out_fp.getvalue()
    report = verify_fp(io.BytesIO(new), nthreads=1)
    assert report.ok, report.findings
    check_note(new, report, recovery)
    return new, report, recovery


def check_note(new, report, recovery):
    """Check that the metadata of a new file say what is lost, and `verify` too."""
    _, note = without_note(bp.unpack_bytes_from_bytes(new)[1])
    wanted = recovery.losses or recovery.metadata == "lost"
    shown = [finding.kind for finding in report.findings].count("recovered")
    if any("no JSON object" in remark for remark in recovery.remarks):
        wanted = False
    assert (bool(wanted), bool(wanted)) == (note is not None, bool(shown))
    if note is not None:
        field = {"bytes": "span"}.get(note["unit"], note["unit"])
        lost = [[*getattr(loss, field)] for loss in recovery.losses]
        assert lost == note["filled"] + note["left_out"]
        assert recovery.certain == note["certain"]


def without_note(metadata):
    """Return metadata without the note of a recovery, and the note."""
    user = user_metadata(metadata)
    if not isinstance(user, dict) or KEY not in user:
        return metadata, None
    rest = {key: user[key] for key in user if key != KEY}
    return replaced_metadata(metadata, rest or None), user[KEY]


def recovered(damaged, **options):
    """Return the new file's chunks, and what was told."""
    new, report, recovery = recovered_and_verified(damaged, **options)
    # By chance a damaged chunk may seem to be of a codec that is not there.
    harmless = ("no-checksum", "typesize", "codec", "recovered")
    assert not [f for f in report.findings if f.kind not in harmless]
    return [plain for _, _, plain in frames_of(new)], recovery


def failures(frames, damaged, origin, checksum):
    """Yield what is wrong with the recovery of a damaged file, in a word each."""
    expected = [frames[i][2] for i in untouched(frames, origin)]
    try:
        dropped, recovery = recovered(damaged, drop=True)
    except FormatError:
        if expected:
            yield "nothing"
        return
    left = iter(dropped)
    if not all(plain in left for plain in expected):
        yield "lost"
    known = {plain for _, _, plain in frames}
    if checksum != "None" and not {*dropped} <= known:
        yield "foreign"
    filled, recovery = recovered(damaged)
    if not recovery.certain:
        return
    if any(filled[i : i + 1] != [frames[i][2]] for i in untouched(frames, origin)):
        yield "displaced"
    if len(filled) != len(frames):
        yield "count"
