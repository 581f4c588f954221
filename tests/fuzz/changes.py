"""Fuzzing of undo records: any bytes at the end of a file that says that it has one.

All readers give the content before the change, or an error, and change nothing. A
writer goes on from what the readers have seen, or leaves it as it is.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import random
import struct
import warnings
from pathlib import Path

from fuzz import parts
from fuzz.outcomes import Allowed, Broken, outcome

from bloscpack import append, exceptions, file_io
from bloscpack.reader import Reader
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

PLAIN = bytes(range(256)) * 10
NEW = b"new bytes" * 50
MORE = b"more"
# Length of the record, digest, magic.
FOOTER = struct.Struct("<q32s8s")


class Watched(io.BytesIO):
    """A file in memory that keeps what it held after each write."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.states: list[bytes] = []

    def write(self, data) -> int:
        count = super().write(data)
        self.states.append(self.getvalue())
        return count


@functools.cache
def states() -> tuple[bytes, ...]:
    """Return the states of a file with an undo record during an append."""
    fp = Watched(file_io.pack_bytes_to_bytes(PLAIN, 1000, metadata={"a": 1}))
    append.append_fp(fp, io.BytesIO(NEW), len(NEW), metadata={"a": 2}, nthreads=1)
    return tuple(state for state in fp.states if state[5] & 4)


def start_of_record(data: bytes) -> int:
    """Return where the record begins, by the last bytes of the file."""
    return len(data) - FOOTER.size - FOOTER.unpack(data[-FOOTER.size :])[0]


def with_right_digest(record: bytes, position: int) -> bytes:
    """Return the record, at this position of a file, with length and digest right."""
    body = record[: -FOOTER.size]
    placed = struct.pack("<q", position) + body
    digest = hashlib.blake2b(placed, digest_size=32).digest()
    return body + FOOTER.pack(len(body), digest, record[-8:])


def run(data: bytes, folder: Path) -> object:
    """Read the file `data`, then append; return what was read."""
    path = folder / "a.blp"
    path.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a change was interrupted
            found = _read(path)
            _check_readers(data, path, found)
            if data in states() and found != PLAIN:
                raise Broken("with its undo record: %.200r" % (found,))
            if not _is_forged(data) and found != PLAIN and _is_plain(found):
                raise Broken("read: %.200r" % (found,))
            _append(path, found, _is_forged(data))
        if not {"a.blp"}.issuperset(os.listdir(folder)):
            raise Broken("left behind: %r" % os.listdir(folder))
    finally:
        for made_here in folder.iterdir():
            made_here.unlink()
    return found


def _is_plain(found: object) -> bool:
    return not isinstance(found, Exception)


def _is_forged(data: bytes) -> bool:
    """Return whether someone took pains with it: it may say what he likes."""
    try:
        start = start_of_record(data)
        record = data[start:]
        return start > 0 and record == with_right_digest(record, start)
    except struct.error:
        return False


def _read(path: Path) -> object:
    found = outcome(file_io.unpack_bytes_from_file, path)
    return found[0] if _is_plain(found) else found


def _read_parts(data: bytes) -> tuple[bytes]:
    reader = Reader(io.BytesIO(data))
    return (bytes(reader.read(0, reader.nbytes)),)


def _check_readers(data: bytes, path: Path, found: object) -> None:
    """Raise `Broken` if readers disagree, or have changed the file."""
    others = [
        outcome(file_io.unpack_bytes_from_bytes, data),
        outcome(_read_parts, data),
    ]
    for other in others:
        if _is_plain(found) != _is_plain(other) or (
            _is_plain(found) and found != other[0]
        ):
            raise Broken("one reads %.200r, another %.200r" % (found, other))
    report = verify_fp(io.BytesIO(data))
    if report.ok and not _is_plain(found):
        raise Broken("verified, but %.200r" % (found,))
    outcome(recover_fp, io.BytesIO(data), io.BytesIO())
    if data != path.read_bytes():
        raise Broken("reading has changed something")


def _append(path: Path, found: object, forged: bool) -> None:
    """Append; what fails leaves what the readers see as it was.

    Someone who forges a record may replace the old bytes by those of a damaged file.
    """
    content = path.read_bytes()
    new = path.with_name("new")
    new.write_bytes(MORE)
    try:
        append.append(path, new, nthreads=1, sync=False)
    except (*Allowed, exceptions.StorageError):
        if not (_is_plain(found) or forged) and path.read_bytes() != content:
            raise Broken("the append failed, but changed the file") from None
        expected = found
    else:
        if not (_is_plain(found) or forged):
            raise Broken("appended to what no reader reads")
        expected = found + MORE if _is_plain(found) else found
    after = _read(path)
    if _is_plain(expected) and after != expected:
        raise Broken("after appending: %.200r" % (after,))
    new.unlink()


# What the bytes are


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a file whose undo record is changed, or not, and is cut, or not."""
    data = rng.choice(states())
    start = start_of_record(data)
    record = bytearray(data[start:])
    right = rng.randrange(2)
    for _ in range(rng.randrange(4)):
        if rng.randrange(2):
            last = min(88, len(record) - 8)
            i = rng.choice((*range(8, last, 8), len(record) - FOOTER.size))
            old = int.from_bytes(record[i : i + 8], "little")
            number = parts.other_number(old, 64, rng.randrange) % 2**64
            record[i : i + 8] = number.to_bytes(8, "little")
        else:
            record = bytearray(parts.changed_text(bytes(record), rng.randrange))
    if right and len(record) > FOOTER.size:
        record = bytearray(with_right_digest(bytes(record), start))
    content = data[:start] + record
    if rng.randrange(16) == 0:
        content = content[: rng.randrange(40, len(content))]
    return content
