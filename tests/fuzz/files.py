"""Fuzzing of whole files: any bytes, given to everything that reads or changes them."""

from __future__ import annotations

import functools
import io
import random
import warnings
import zlib
from pathlib import Path

from fuzz import parts
from fuzz.outcomes import Allowed, Broken, outcome

from bloscpack import (
    abstract_io,
    append,
    describe,
    exceptions,
    file_io,
    headers,
    memory_io,
    numpy_io,
    reader,
    recover,
    serializers,
    verify,
)
from bloscpack.headers import has_undo_record

TESTS = Path(__file__).resolve().parent.parent
Unsupported = exceptions.Unsupported

LARGEST_SEED = 1500
NEW = bytes(range(256)) * 40


class Pipe:
    """A file object that can only be read, some bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._fp = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._fp.read(min(size, 100))


def read_bytes(data, nthreads=1):
    return file_io.unpack_bytes_from_bytes(data, nthreads=nthreads)


def read_stream(fp):
    source = file_io.CompressedFPSource(fp, to_end=True)
    sink = memory_io.PlainMemorySink()
    abstract_io.unpack(source, sink, nthreads=1)
    return b"".join(map(bytes, sink.chunks)), source.metadata


def read_array(data):
    array = numpy_io.unpack_ndarray_from_bytes(data, nthreads=1)
    return array.shape, array.dtype, array.tobytes("A")


def same(one, other) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return isinstance(one, Exception) and isinstance(other, Exception)
    return repr(one) == repr(other)  # NaN is not equal to itself


def run_readers(data: bytes, draw: int):
    """Return what the plain bytes are; all readers must agree."""
    nthreads = 1 if draw % 32 else 2
    expected = outcome(read_bytes, data, nthreads)
    for fp in (Pipe, io.BytesIO):
        found = outcome(read_stream, fp(data))
        if not same(expected, found):
            raise Broken("%s: %.300r, not %.300r" % (fp, found, expected))
    array = outcome(read_array, data)
    if isinstance(array, Exception):
        return expected
    if isinstance(expected, Exception) or expected[0] != array[-1]:
        raise Broken("an array of %.200r" % (expected,))
    return expected


def run_changes(data: bytes, before, draw: int) -> None:
    """Append and replace the metadata: all is done, or no byte has changed.

    A file with an undo record may be restored.
    """
    new = NEW[: (0, 1, 4, 8, 24, 40, 120, 1000)[draw % 8]]
    given = {"metadata": {"a": draw}} if draw % 5 == 0 else {}
    fp = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # about bytes behind
            append.append_fp(fp, io.BytesIO(new), len(new), nthreads=1, **given)
    except Allowed:
        if fp.getvalue() != data and not has_undo_record(data):
            raise Broken("append failed, but changed the file") from None
    else:
        after = outcome(read_bytes, fp.getvalue())
        if isinstance(before, Exception):
            # Only the last chunk has been looked into.
            if not isinstance(after, Exception):
                raise Broken("append made damage look sound")
        elif isinstance(after, Exception) or after[0] != before[0] + new:
            raise Broken("after appending: %.300r" % (after,))
    fp = io.BytesIO(data)
    try:
        append.rewrite_metadata_fp(fp, {"a": draw})
    except Allowed:
        if fp.getvalue() != data and not has_undo_record(data):
            raise Broken("the metadata stay, but the file changed") from None
    else:
        after = outcome(read_bytes, fp.getvalue())
        expected = before
        if not isinstance(before, Exception):
            expected = before[0], serializers.replaced_metadata(before[1], {"a": draw})
        if not same(after, expected):
            raise Broken("with new metadata: %.300r" % (after,))


def read_spans(data):
    opened = reader.Reader(io.BytesIO(data))
    middle = opened.nbytes // 2
    halves = (0, middle), (middle, opened.nbytes)
    return b"".join(opened.read(*span, nthreads=1) for span in halves)


def run_reader(data: bytes, expected) -> None:
    """Read in two halves; where offsets or gaps are wrong one of both may fail."""
    found = outcome(read_spans, data)
    if isinstance(found, Exception) or isinstance(expected, Exception):
        return
    if found != expected[0]:
        raise Broken("in parts: %.200r, not %.200r" % (found, expected[0]))


def run_repairs(data: bytes, expected) -> None:
    """Verify and recover: what can't be read has errors, what comes out is sound."""
    report = outcome(lambda: verify.verify_fp(io.BytesIO(data), nthreads=1))
    found_none = not isinstance(report, Exception) and not report.nerrors
    if found_none and isinstance(expected, Exception):
        raise Broken("nothing found, but %s" % expected)
    out = io.BytesIO()
    recovery = outcome(lambda: recover.recover_fp(io.BytesIO(data), out, nthreads=1))
    if isinstance(recovery, Exception):
        if out.getvalue() and "no memory" not in recovery.message:
            raise Broken("nothing recovered, but '%d' bytes" % len(out.getvalue()))
        return
    found = outcome(read_bytes, out.getvalue())
    if isinstance(found, Exception):
        # What stands for lost chunks may be too large to be read here.
        if isinstance(found, Unsupported) or "no memory" in found.message:
            return
        raise Broken("recovered: %s" % found)
    # Without digests nobody knows what a copy has swallowed; it is told as an error.
    if isinstance(expected, Exception) or (
        report.nerrors and report.checksum == "None"
    ):
        return
    # Chunks that are left behind the last one may count as lost and found.
    if not found[0].startswith(expected[0]):
        raise Broken("recovered: %.200r, not %.200r" % (found[0], expected[0]))


def described(path: str) -> list[object]:
    """Return what the verb ``info`` shows of a file, which may be damaged."""
    return list(describe.inspect_files(path, lenient=True))


def run_files(data: bytes, expected, folder: Path) -> None:
    """Give the bytes, as a file, to what reads files."""
    path, out = folder / "a.blp", folder / "out"
    path.write_bytes(data)
    outcome(described, str(path))
    found = outcome(file_io.unpack_file_from_file, path, out)
    if not isinstance(found, Exception):
        found = out.read_bytes(), found
        out.unlink()
    if not same(expected, found):
        raise Broken("as a file: %.300r, not %.300r" % (found, expected))
    path.unlink()
    if list(folder.iterdir()):
        raise Broken("left behind: %r" % list(folder.iterdir()))


def run_records(data: bytes) -> None:
    """Give the bytes to what decodes records."""
    for decode in (
        headers.BloscpackHeader.decode,
        headers.MetadataHeader.decode,
        headers.decode_header,
        headers.decode_blosc_header,
    ):
        for piece in (data, data[:32], data[32:64]):
            outcome(decode, piece)
    outcome(serializers.SERIALIZERS[0].loads, data)


def run(data: bytes, folder: Path) -> object:
    """Do everything with `data`; raises `Broken`, or whatever should not be raised.

    Returns what the plain bytes are, or the error. `folder` is empty.
    """
    draw = zlib.crc32(data)
    run_records(data)
    expected = run_readers(data, draw)
    run_reader(data, expected)
    run_changes(data, expected, draw >> 8)
    if draw % 16 == 1:  # what takes longest, at times only
        run_repairs(data, expected)
    if draw % 4 == 0:
        run_files(data, expected, folder)
    return expected


# What the bytes are


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a sound or an invalid file that was changed."""
    data = rng.choice(seeds())
    return mutated(data, rng, lambda old: change_some_bytes(old, rng))


def mutated(data: bytes, rng: random.Random, change_bytes) -> bytes:
    """Return other bytes; half of them have right digests."""
    try:
        if rng.random() < 0.3:
            raise ValueError
        taken = parts.take_apart(data)
        for _ in range(1 + rng.randrange(3)):
            parts.change(taken, rng.randrange)
        data = taken.join()
    except (ValueError, IndexError):
        data = change_bytes(data)
    return parts.with_right_digests(data) if rng.randrange(2) else data


def change_some_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return `data` with some bytes changed, cut out or repeated."""
    changed = bytearray(data)
    for _ in range(1 + rng.randrange(4)):
        i = rng.randrange(len(changed) + 1)
        # Most of what matters stands in front.
        i = min(i, rng.randrange(200)) if rng.randrange(2) else i
        kind = rng.randrange(5)
        if kind == 0:
            del changed[i : i + rng.choice((1, 2, 4, 8, 100))]
        elif kind == 1:
            changed[i:i] = changed[i : i + rng.choice((1, 4, 8, 16, 32))]
        elif kind == 2 and i < len(changed):
            changed[i] ^= 1 << rng.randrange(8)
        elif kind == 3:
            changed[i : i + 8] = rng.choice((0, 1, -1, 2**31 - 1, 2**62)).to_bytes(
                8, "little", signed=True
            )
        elif i < len(changed):
            changed[i] = rng.randrange(256)
    return bytes(changed)


@functools.cache
def seeds() -> list[bytes]:
    """Return the small ones among the golden and the invalid files, shortest first."""
    folders = (TESTS / "golden" / "blp", TESTS / "invalid")
    paths = [path for folder in folders for path in sorted(folder.rglob("*.blp"))]
    found = {path.read_bytes() for path in paths if path.stat().st_size <= LARGEST_SEED}
    return sorted(found, key=lambda data: (len(data), data))
