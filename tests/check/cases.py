"""Small files with random damage, and what the recovery of any file has to hold.

Every byte of a damaged file knows where it was, so that it is known which chunks are
untouched.
"""

from __future__ import annotations

import io
import random

import blosc
import numpy
from builders import text

import bloscpack as bp
from bloscpack.checksums import CHECKSUM_NAMES
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
