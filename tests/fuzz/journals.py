"""Fuzzing of journals: any bytes under the name of the journal of a sound file.

A reader gives the content before or after the change, or an error, and changes
nothing. A writer goes on from what the reader has seen, or leaves the file as it is.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import random
import tempfile
import warnings
import zlib
from pathlib import Path

import builders
from fuzz import parts
from fuzz.outcomes import Allowed, Broken, outcome

from bloscpack import append, exceptions, file_io
from bloscpack._commit import journal

PLAIN = bytes(range(256)) * 10
NEW = b"new bytes" * 50
MORE = b"more"
# Stands for the inode number of the file, which no two runs share.
INODE = b"\xff" * 8
INODE_AT = slice(24, 32)

Refusal = (*Allowed, exceptions.StorageError)


@functools.cache
def states() -> tuple[bytes, bytes, bytes]:
    """Return the file before and after an append, and the journal of that."""
    before = file_io.pack_bytes_to_bytes(PLAIN, 1000, metadata={"a": 1})
    fp = io.BytesIO(before)
    append.append_fp(fp, io.BytesIO(NEW), len(NEW), nthreads=1)
    return before, fp.getvalue(), journal_of(before)


def journal_of(before: bytes) -> bytes:
    """Return the journal of an append of `NEW` to a file."""
    with tempfile.TemporaryFile() as fp:
        fp.write(before)
        fp.flush()
        planned = builders.planned_append(before, len(NEW))
        content = b"".join(journal.encode(fp, *planned))
    return with_right_digest(with_inode(content, INODE))


def with_inode(content: bytes, inode: bytes) -> bytes:
    """Return a journal of another file."""
    return content[: INODE_AT.start] + inode + content[INODE_AT.stop :]


def with_right_digest(content: bytes) -> bytes:
    """Return a journal closed by the right digest."""
    size = journal.DIGEST_LENGTH
    at = journal.COMPLETE_FLAG_OFFSET
    covered = content[:at] + b"\0" + content[at + 1 : -size]
    return content[:-size] + hashlib.sha256(covered).digest()


def placed(data: bytes, inode: int) -> bytes:
    """Return a journal for the file that there is; right digests stay right."""
    if data[INODE_AT] != INODE:
        return data
    right = data == with_right_digest(data)
    data = with_inode(data, inode.to_bytes(8, "little"))
    return with_right_digest(data) if right else data


def run(data: bytes, folder: Path) -> object:
    """Read beside the journal `data`, then append; return what was read."""
    path, name = folder / "a.blp", folder / "a.blp.journal"
    content = _content(zlib.crc32(data))
    path.write_bytes(content)
    beside = placed(data, path.stat().st_ino)
    name.write_bytes(beside)
    forged = beside[:8] == journal.MAGIC and _is_forged(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a change was interrupted
            found = _read(path)
            if (content, beside) != (path.read_bytes(), name.read_bytes()):
                raise Broken("reading has changed something")
            if _is_genuine(data) and found != PLAIN:
                raise Broken("beside its journal: %.200r" % (found,))
            if not isinstance(found, Exception):
                _check_plain(found, forged)
            _append(path, found, forged)
        if not {"a.blp", "a.blp.journal"}.issuperset(os.listdir(folder)):
            raise Broken("left behind: %r" % os.listdir(folder))
    finally:
        for made_here in folder.iterdir():
            made_here.unlink()
    return found


def _content(draw: int) -> bytes:
    """Return the file before, after, or in the middle of the change."""
    before, after, _ = states()
    kind, cut = draw % 4, (draw >> 8) % len(after)
    if kind < 2:
        return (before, after)[kind]
    return after[:cut] + before[cut:] if kind == 2 else before + after[len(before) :]


def _is_genuine(data: bytes) -> bool:
    at = journal.COMPLETE_FLAG_OFFSET
    return data[:at] + b"\0" + data[at + 1 :] == states()[2]


def _is_forged(data: bytes) -> bool:
    """Return whether someone took pains with it: it may say what he likes."""
    return data == with_right_digest(data) and not _is_genuine(data)


def _read(path: Path) -> object:
    try:
        found = outcome(file_io.unpack_bytes_from_file, path)
    except exceptions.StorageError as error:
        return error
    return found if isinstance(found, Exception) else found[0]


def _check_plain(found: object, forged: bool) -> None:
    if found not in (PLAIN, PLAIN + NEW) and not forged:
        raise Broken("read: %.200r" % (found,))


def _append(path: Path, found: object, forged: bool) -> None:
    """Append; what fails leaves the file as it was, and as it was before the change."""
    content = path.read_bytes()
    new = path.with_name("new")
    new.write_bytes(MORE)
    try:
        append.append(path, new, nthreads=1, sync=False)
    except Refusal:
        if path.read_bytes() not in (content, states()[0]) and not forged:
            raise Broken("the append failed, but changed the file") from None
    else:
        after = _read(path)
        if not isinstance(found, Exception) and after != found + MORE:
            raise Broken("after appending: %.200r" % (after,))
    new.unlink()


# What the bytes are


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a journal, changed or not, complete or not."""
    data = bytearray(states()[2])
    data[journal.COMPLETE_FLAG_OFFSET] = rng.randrange(2)
    right = rng.randrange(2)
    for _ in range(rng.randrange(4)):
        if rng.randrange(2):
            i = rng.choice((8, 9, 16, *range(32, 200, 8)))
            old = int.from_bytes(data[i : i + 8], "little")
            number = parts.other_number(old, 64, rng.randrange) % 2**64
            data[i : i + 8] = number.to_bytes(8, "little")
        else:
            data = bytearray(parts.changed_text(bytes(data), rng.randrange))
    if rng.randrange(16) == 0:
        return rng.randbytes(rng.randrange(300))
    return with_right_digest(bytes(data)) if right else bytes(data)
