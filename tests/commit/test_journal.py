"""The journal: its bytes, damaged journals, and the file that it belongs to."""

from __future__ import annotations

import hashlib
import io
import os
import random
import shutil
import struct
from pathlib import Path

import pytest
from builders import packed, planned_append
from crash.operations import (
    JOURNAL,
    TARGET,
    Append,
    RewriteMetadata,
    numbers,
    pack,
    quietly,
    refill,
)
from crash.states import Checker, process_states
from crash.watched_disk import WatchedDisk, replaced_disk

import bloscpack
from bloscpack._commit import journal, trust
from bloscpack._commit.locking import open_locked
from bloscpack._format.chunks import walk_chunks
from bloscpack._format.sections import read_header
from bloscpack._storage import base
from bloscpack._storage.base import FileObjectStorage, MemoryStorage
from bloscpack._storage.cursor import Cursor
from bloscpack.append import append, rewrite_metadata
from bloscpack.exceptions import FormatError, StorageError, UsageError

# Three chunks that Blosc can't make smaller, then an append that adds two.
OLD = packed(random.Random(1).randbytes(2500), entries=9)
EXTENTS, NEW_HEAD, UNCHANGED = planned_append(OLD, 2000)
FIRST, LAST = UNCHANGED
TABLE = EXTENTS[1][0]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / TARGET
    path.write_bytes(OLD)
    return path


def encoded(path, extents=EXTENTS, new_head=NEW_HEAD, unchanged=UNCHANGED):
    with path.open("rb") as fp:
        return b"".join(journal.encode(fp, extents, new_head, unchanged))


def closed(content):
    """Return a complete journal, with its flag set."""
    fp = io.BytesIO(content)
    journal.mark_complete(fp)
    return fp.getvalue()


def loaded(path, content):
    """Write `content` as the journal of `path`; return the accepted journal."""
    name = journal.name_for(str(path))
    refill(name, content)
    return accepted(path)


def accepted(path):
    """Return the journal of a file; None if there is none, or an incomplete one."""
    with Path(path).open("rb") as fp:
        return trust.load(journal.name_for(str(path)), fp)


def fields(content):
    """Return a journal whose rules are not checked."""
    return journal.Journal("journal", MemoryStorage(content))


def with_digest(content):
    """Return the bytes of a journal closed by the right digest."""
    return content[:-32] + hashlib.sha256(content[:-32]).digest()


# Its layout


def test_name(path):
    assert str(path) + ".journal" == journal.name_for(str(path))


def test_name_of_a_link(path, monkeypatch):
    link = path.with_name("link")
    link.symlink_to(path)
    assert str(path) + ".journal" == journal.name_for(str(link))
    monkeypatch.chdir(path.parent)
    assert str(path) + ".journal" == journal.name_for("link")


@pytest.mark.parametrize("finish", [bytes, closed])
def test_round_trip(path, finish):
    saved = loaded(path, finish(encoded(path)))
    assert len(OLD) == saved.length
    assert [(start, OLD[start:stop]) for start, stop in EXTENTS] == [
        (start, bytes(piece)) for start, piece in saved.old_bytes()
    ]


def test_layout(path):
    content = encoded(path)
    inode = path.stat().st_ino
    assert b"blpkjrnl\1" + bytes(7) == content[:16]
    expected = len(OLD), inode, 3, FIRST, LAST - FIRST
    assert expected == struct.unpack_from("<qQqqq", content, 16)
    # The only piece is also what lies at the end.
    witness = hashlib.blake2b(2 * OLD[FIRST:LAST], digest_size=32)
    assert witness.digest() == content[56:88]
    table = 0, 32, TABLE, TABLE + 16, LAST, len(OLD)
    assert table == struct.unpack_from("<6q", content, 88)
    assert struct.pack("<q", 32) + NEW_HEAD == content[136:176]
    assert OLD[:32] + OLD[TABLE : TABLE + 16] + OLD[LAST:] == content[176:-32]
    assert hashlib.sha256(content[:-32]).digest() == content[-32:]
    assert content[:9] + b"\1" + content[10:] == closed(content)


def test_large_extents_come_in_pieces(tmp_path):
    path = tmp_path / TARGET
    path.write_bytes(bytes(base.READ_SIZE) + b"x" * 7 + bytes(base.READ_SIZE))
    extents = [(0, 32), (5, path.stat().st_size)]
    with path.open("rb") as fp:
        pieces = [*journal.encode(fp, extents, NEW_HEAD, (2, 5))]
    assert [32, base.READ_SIZE, base.READ_SIZE, 2, 32] == [len(p) for p in pieces[4:]]
    content = b"".join(pieces)
    old = dict(fields(content).old_bytes())
    assert [0, 5, 5 + base.READ_SIZE, 5 + 2 * base.READ_SIZE] == list(old)
    assert path.read_bytes()[5:] == b"".join([*old.values()][1:])


@pytest.mark.parametrize("size", [1, 700, 2**24])
def test_no_more_is_looked_at_than_sensible(tmp_path, size):
    class Counting(io.BytesIO):
        looked_at = 0

        def read(self, size=-1):
            data = super().read(size)
            self.looked_at += len(data)
            return data

    fp = Counting(bytes(size))
    journal.digest_of_witness(FileObjectStorage(fp), 0, size)
    most = journal.WITNESS_SAMPLES * journal.WITNESS_SAMPLE_SIZE
    assert min(size, most) <= fp.looked_at <= most + journal.WITNESS_SAMPLE_SIZE


@pytest.mark.parametrize("place", [0, 2**23, 2**24 - 1])
def test_witness_is_spread_over_all_that_stays(place):
    content = bytearray(2**24)
    before = journal.digest_of_witness(MemoryStorage(content), 0, 2**24)
    content[place] = 1
    assert before != journal.digest_of_witness(MemoryStorage(content), 0, 2**24)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, b"AAAAbbbbbb"),
        (2, b"AAbbbbbbbb"),
        (4, b"bbbbbbbbCC"),
        (13, b"Cbbbbbbbbb"),
        (14, b"bbbbbbbbbb"),
    ],
)
def test_overlay(path, offset, expected):
    path.write_bytes(b"AAAA" + bytes(8) + b"CC" + bytes(20))
    saved = fields(encoded(path, [(0, 4), (12, 14)], b"A", (4, 12)))
    view = bytearray(b"b" * 10)
    saved.overlay(offset, memoryview(view))
    assert expected == view


# Incomplete and damaged journals


def test_none(path):
    with path.open("rb") as fp:
        for name in (str(path) + ".journal", str(path) + "/journal", "x" * 300):
            assert None is trust.load(name, fp)
            assert not trust.belongs_to_missing_file(name)


def test_every_length_that_was_never_completed(path):
    content = encoded(path)
    for length in range(len(content)):
        assert None is loaded(path, content[:length])
        padded = content[:length] + bytes(len(content) - length)
        # Its digest may end in zeros.
        assert padded == content or loaded(path, padded) is None


def test_parts_that_never_got_to_the_disk(path):
    content = encoded(path)
    chance = random.Random(1)
    for _ in range(100):
        part = bytearray(content)
        start = chance.randrange(0, len(part), journal.SECTOR)
        stop = chance.randrange(start + journal.SECTOR, len(part) + journal.SECTOR)
        part[start:stop] = bytes(len(part[start:stop]))
        assert None is loaded(path, part)


def test_every_length_of_one_that_was_completed(path):
    content = closed(encoded(path))
    for length in range(journal.COMPLETE_FLAG_OFFSET + 1, len(content)):
        with pytest.raises(StorageError, match="is damaged"):
            loaded(path, content[:length])


def test_every_bit_of_one_that_was_completed(path):
    """Either it still says the same, or nothing is believed: never another thing."""
    content = closed(encoded(path))
    original = loaded(path, content)
    same = 0
    # Every bit of the head and of the table; behind them any bit is like any other.
    for bit in [*range(8 * 176), *range(8 * 176, 8 * len(content), 13)]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            saved = loaded(path, flipped)
        except StorageError:
            continue
        assert original.length == saved.length
        assert [*original.old_bytes()] == [*saved.old_bytes()]
        same += 1
    assert 1 == same  # the bit that says that it is complete


@pytest.mark.parametrize(
    "content",
    [b"x", b"blpkjrnX", b"other" * 100, b"\0\0\1", bytes(16) + b"data" * 900],
)
def test_what_only_has_the_name(path, content):
    with pytest.raises(StorageError, match="has the name of a journal"):
        loaded(path, content)


NO_FILES = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "link": lambda name: os.symlink(TARGET, name),
    "link to a journal": lambda name: os.symlink("moved", name),
    "link to nothing": lambda name: os.symlink("nothing", name),
    "device": lambda name: os.symlink("/dev/zero", name),
}
USES = {
    "read": lambda path: bloscpack.unpack_bytes_from_file(path),
    "append": lambda path: append(path, Path(__file__)),
    "replace": lambda path: bloscpack.pack_bytes_to_file(b"new", path),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_regular_file(tmp_path, kind, use):
    path = tmp_path / TARGET
    bloscpack.pack_bytes_to_file(OLD, path)
    packed = path.read_bytes()
    (tmp_path / "moved").write_bytes(closed(encoded(path, [(0, 32)])))
    NO_FILES[kind](tmp_path / JOURNAL)
    with pytest.raises(StorageError, match="a journal, but is no regular file"):
        USES[use](path)
    assert packed == path.read_bytes()
    assert [TARGET, JOURNAL, "moved"] == sorted(os.listdir(tmp_path))


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_regular_file_stays_where_a_file_is_gone(tmp_path, kind):
    NO_FILES[kind](tmp_path / JOURNAL)
    with pytest.raises(StorageError, match="a journal, but is no regular file"):
        bloscpack.pack_bytes_to_file(b"new", tmp_path / TARGET)
    assert [JOURNAL] == os.listdir(tmp_path)


@pytest.fixture
def huge(path):
    """The name of a journal of zeros that no memory holds."""
    name = journal.name_for(str(path))
    Path(name).write_bytes(b"")
    try:
        os.truncate(name, 2**43)
    except OSError:
        pytest.skip("no disk takes such a file")
    return name


def begin_with(name, head):
    with open(name, "r+b") as fp:
        fp.write(head)


def test_more_than_a_change_saves_is_not_read(path, huge):
    longer = bytearray(closed(encoded(path)))
    struct.pack_into("<q", longer, 128, 2**43 - len(longer) + len(OLD))
    for head in (b"", encoded(path), closed(encoded(path)), longer, b"x"):
        begin_with(huge, head)
        with pytest.raises(StorageError, match="expected at most twice the size"):
            accepted(path)


@pytest.mark.parametrize("finish", [bytes, closed])
def test_a_huge_journal_of_a_missing_file_is_not_hashed(path, huge, finish):
    content = bytearray(finish(encoded(path)))
    struct.pack_into("<q", content, 128, 2**43 - len(content) + len(OLD))
    begin_with(huge, content)
    with open(huge, "r+b") as fp:
        fp.seek(-1, os.SEEK_END)
        fp.write(b"x")
    path.unlink()
    with pytest.raises(StorageError, match="of a file that had the name"):
        bloscpack.pack_bytes_to_file(b"new", path)


def test_a_long_one_is_read_when_it_is_needed(path, monkeypatch):
    monkeypatch.setattr(journal, "MAX_IN_MEMORY", 0)
    monkeypatch.setattr(base, "READ_SIZE", 250)
    saved = loaded(path, encoded(path))
    os.unlink(saved.name)
    pieces = [*saved.old_bytes()]
    assert 5 == len(pieces)
    for start, piece in pieces:
        assert OLD[start : start + len(piece)] == piece
    view = bytearray(len(OLD))
    saved.overlay(0, memoryview(view))
    expected = bytearray(len(OLD))
    for start, stop in EXTENTS:
        expected[start:stop] = OLD[start:stop]
    assert expected == view


@pytest.mark.parametrize("length", [9, 88, 200, 500])
def test_another_version(path, length):
    """A journal of an unknown version is refused, complete or not."""
    content = bytearray(encoded(path))
    content[8] = 2
    with pytest.raises(StorageError, match="version 2, which is not known"):
        loaded(path, with_digest(bytes(content))[:length])


def test_no_version(path):
    content = bytearray(encoded(path))
    content[8] = 0
    with pytest.raises(StorageError, match="has version 0"):
        loaded(path, with_digest(bytes(content)))


@pytest.mark.parametrize("flag", [2, 128])
def test_an_unknown_flag(path, flag):
    content = bytearray(encoded(path))
    content[journal.COMPLETE_FLAG_OFFSET] = flag
    with pytest.raises(StorageError, match=f"flag 0 or 1, found '{flag}'"):
        loaded(path, bytes(content))


def test_reserved_bytes(path):
    content = bytearray(closed(encoded(path)))
    content[12] = 1
    with pytest.raises(StorageError, match="zero bytes behind the flag"):
        loaded(path, with_digest(bytes(content)))


# What makes it another length.
LENGTHS = [
    (32, "<q", 2**62),  # extents
    (32, "<q", -1),
    (32, "<q", 0),
    (32, "<q", 2),
    (88, "<q", -1),  # first extent
    (96, "<q", -1),
    (96, "<q", 2**62),
    (96, "<q", 31),
    (128, "<q", 2500),  # last extent
    (136, "<q", -1),  # new head
    (136, "<q", 2**62),
]


@pytest.mark.parametrize(("offset", "form", "value"), LENGTHS)
def test_another_length_with_the_right_digest(path, offset, form, value):
    content = bytearray(encoded(path))
    struct.pack_into(form, content, offset, value)
    assert None is loaded(path, with_digest(bytes(content)))
    with pytest.raises(StorageError, match="is damaged"):
        loaded(path, closed(with_digest(bytes(content))))


# A rule, what is written where, and in what form: the length stays the same.
BROKEN = [
    ("an old length of at most", 16, "<q", len(OLD) + 1),
    ("an old length of at most", 16, "<q", 2**62),
    ("an old length of at most", 16, "<q", -1),
    ("extents that are in order", 16, "<q", 10),
    ("extents that are in order", 88, "<2q", -32, 0),
    ("extents that are in order", 88, "<2q", len(OLD), len(OLD) + 32),
    ("extents that are in order", 104, "<2q", 16, 32),
    ("extents that are in order", 104, "<2q", LAST, LAST + 16),
    ("extents that are in order", 120, "<2q", LAST + 1, len(OLD) + 1),
    ("extents that are in order", 88, "<4q", 32, 0, TABLE, TABLE + 80),
    ("a new head that fills", 88, "<2q", 1, 33),
    ("a new head that fills", 88, "<4q", 0, 31, TABLE, TABLE + 17),
    ("a witness of at least '64' bytes", 40, "<q", -1),
    ("a witness of at least '64' bytes", 40, "<q", 2**63 - 1),
    ("a witness of at least '64' bytes", 40, "<2q", FIRST, 63),
    ("a witness of at least '64' bytes", 40, "<2q", FIRST, 0),
    ("a witness of at least '64' bytes", 40, "<2q", FIRST, -1),
    ("a witness of at least '64' bytes", 40, "<2q", FIRST, 2**62),
    ("a witness of at least '64' bytes", 40, "<2q", FIRST, LAST - FIRST + 1),
    ("a witness of at least '64' bytes", 40, "<2q", 0, 64),
    ("a witness of at least '64' bytes", 40, "<2q", 31, 65),
    ("a witness of at least '64' bytes", 40, "<2q", LAST + 9, 64),
]


@pytest.mark.parametrize("finish", [bytes, closed])
@pytest.mark.parametrize("case", BROKEN)
def test_every_rule_about_the_fields(path, case, finish):
    rule, offset, form, *values = case
    content = bytearray(encoded(path))
    struct.pack_into(form, content, offset, *values)
    with pytest.raises(StorageError, match="is refused: expected " + rule) as raised:
        loaded(path, finish(with_digest(bytes(content))))
    assert "'%s'" % journal.name_for(str(path)) in str(raised.value)
    assert "remove the journal" in str(raised.value)


# Extents that no change overwrites.
OVERREACHING = {
    "nearly all": [(0, len(OLD) - 64)],
    "metadata that are not there": [(0, 60)],
    "more than the table": [(0, 32), (TABLE, TABLE + 56)],
    "the last but one chunk": [(0, 32), (LAST - 516, LAST)],
    "part of the last chunk": [(0, 32), (LAST, len(OLD) - 1)],
    "twice entries": [(0, 32), (TABLE - 24, TABLE), (TABLE + 8, TABLE + 16)],
}


@pytest.mark.parametrize("kind", OVERREACHING)
def test_no_more_than_a_change_overwrites(path, kind):
    extents = OVERREACHING[kind]
    head = bytes(extents[0][1])
    unchanged = (FIRST + 64, FIRST + 128)
    if kind == "nearly all":
        unchanged = (len(OLD) - 64, len(OLD))
    content = closed(encoded(path, extents, head, unchanged))
    with pytest.raises(StorageError, match="extents that a change overwrites"):
        loaded(path, content)


@pytest.mark.parametrize(
    "extents",
    [
        *(EXTENTS, [(0, 32)], [(0, 32), (LAST, len(OLD))], EXTENTS[:2]),
        [(0, 32), (TABLE - 24, TABLE)],  # as an append to a grid
    ],
)
def test_all_that_a_change_overwrites(path, extents):
    assert loaded(path, closed(encoded(path, extents))).extents == extents


@pytest.mark.parametrize("options", [{"offsets": False}, {}])
def test_extents_of_metadata(tmp_path, options):
    path = tmp_path / TARGET
    path.write_bytes(packed(OLD, metadata={"a": 1}, **options))
    content = path.read_bytes()
    end = 32 + 32 + 10 * len('{"a":1}') + 4
    head = content[:40].ljust(end, b"-")
    unchanged = end + 3, len(content)
    assert loaded(path, encoded(path, [(0, end)], head, unchanged))
    for stop in (end - 1, end + 1):
        with pytest.raises(StorageError, match="extents that a change overwrites"):
            loaded(path, encoded(path, [(0, stop)], head.ljust(stop)[:stop], unchanged))
    if options:
        extents = [(0, end), (len(content) - 9, len(content) - 1)]
        with pytest.raises(StorageError, match="extents that a change overwrites"):
            loaded(path, encoded(path, extents, head, (end + 3, len(content) - 9)))


@pytest.mark.parametrize("nchunks", [-1, 4])
def test_extents_without_an_offset_table(tmp_path, nchunks):
    content = bytearray(packed(random.Random(1).randbytes(3500), offsets=False))
    assert 4 == struct.unpack_from("<q", content, 16)[0]
    struct.pack_into("<q", content, 16, nchunks)
    path = tmp_path / TARGET
    path.write_bytes(content)
    cursor = Cursor(io.BytesIO(content))
    *_, before, last, end = walk_chunks(cursor, read_header(cursor))
    unchanged = 32, before
    extents = [(0, 32), (last, end)]
    assert loaded(path, closed(encoded(path, extents, NEW_HEAD, unchanged)))
    for wrong in ((before, last), (last, end - 1)):
        with pytest.raises(StorageError, match="extents that a change overwrites"):
            loaded(path, encoded(path, [(0, 32), wrong], NEW_HEAD, unchanged))


def test_old_header_that_is_none(path):
    path.write_bytes(b"x" + OLD[1:])
    with pytest.raises(StorageError, match="a file that has no valid beginning"):
        loaded(path, closed(encoded(path)))


# Which file it belongs to


def test_refusal_names_the_journal_and_says_what_to_do(path):
    content = encoded(path)
    path.write_bytes(b"another" * 1000)
    with pytest.raises(StorageError) as raised:
        loaded(path, content)
    assert "'%s'" % journal.name_for(str(path)) in str(raised.value)
    expected = "verify the copy: if it is whole, remove the journal"
    assert expected in str(raised.value)


def belongs(path, content):
    """Return whether a journal was written for a file."""
    try:
        return loaded(path, content) is not None
    except StorageError:
        return False


def changed(pieces):
    """Return OLD with other bytes at some offsets."""
    content = bytearray(OLD)
    for start, piece in pieces.items():
        content[start : start + len(piece)] = piece
    return bytes(content)


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        (True, OLD),
        (True, changed({0: NEW_HEAD})),
        (True, changed({8: NEW_HEAD[8:13], 20: NEW_HEAD[20:22]})),
        (True, changed({TABLE: b"changed"})),
        (True, changed({LAST: b"changed" * 100})),
        # Sectors that were never written, after a power cut.
        (True, changed({0: bytes(32)})),
        (True, changed({0: bytes(12), 12: NEW_HEAD[12:]})),
        (True, changed({0: NEW_HEAD[:16] + bytes(16)})),
        (True, changed({TABLE: bytes(16), LAST: bytes(len(OLD) - LAST)})),
        (False, OLD[:-1]),
        (False, OLD[:LAST]),
        (False, b""),
        (False, bytes(len(OLD))),
        (False, changed({0: b"xyz"})),
        (False, changed({31: b"x"})),
        (False, changed({FIRST: b"x"})),
        (False, changed({500: b"x"})),
        (False, changed({LAST - 1: b"x"})),
        (False, changed({FIRST: bytes(512)})),
    ],
)
def test_belongs(path, expected, content):
    saved = encoded(path)
    path.write_bytes(content)
    assert expected is belongs(path, saved)


def test_copy_of_a_file_with_its_journal(path):
    saved = encoded(path)
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    assert belongs(copy, saved)
    refill(copy, changed({0: NEW_HEAD}))
    assert not belongs(copy, saved)


# Journals of real files


def half_done(tmp_path, operation=None):
    """Return the checker of an append that has been killed near its end."""
    checker = Checker(operation or Append(nbytes=3000), tmp_path)
    states = [state for state in process_states(checker.record) if not state[2]]
    names, contents, _ = [state for state in states if JOURNAL in state[0]][-2]
    checker.lay_down(names, contents)
    assert checker.old == checker.operation.see(checker.folder)
    assert (checker.folder / JOURNAL).exists()
    return checker


def test_every_damage_to_the_journal_is_found(tmp_path):
    checker = half_done(tmp_path)
    path = checker.folder / JOURNAL
    content = path.read_bytes()
    for place in [*range(0, len(content), 97), 8, 9, len(content) - 1]:
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        )
        try:
            assert checker.old == checker.operation.see(checker.folder)
        except StorageError:
            with pytest.raises(StorageError):
                checker.operation.follow(checker.folder, checker.inputs)
            assert path.exists()
    path.write_bytes(content)
    assert checker.old == checker.operation.see(checker.folder)


def test_file_that_was_replaced_by_a_foreign_hand(tmp_path):
    checker = half_done(tmp_path)
    path = checker.folder / TARGET
    os.unlink(path)
    path.write_bytes(bloscpack.pack_bytes_to_bytes(b"another" * 1000))
    for use in (checker.operation.see, lambda f: checker.operation.follow(f, tmp_path)):
        with pytest.raises(StorageError, match="if it is whole, remove the journal"):
            use(checker.folder)
    (checker.folder / JOURNAL).unlink()
    assert (b"another" * 1000, None) == checker.operation.see(checker.folder)


OTHERS = {
    "begins otherwise": lambda plain: b"other" + plain[5:],
    "is otherwise in the middle": lambda plain: plain[:1200] + b"-" + plain[1201:],
    "is another": lambda plain: plain[::-1],
}


@pytest.mark.parametrize("checksum", ["adler32", "None"])
@pytest.mark.parametrize("kind", OTHERS)
def test_file_that_was_written_over_by_a_foreign_hand(tmp_path, kind, checksum):
    """`cp` keeps the inode; the header may be equal to the old one."""
    append_many = Append(nbytes=3000, checksum=checksum)
    checker = half_done(tmp_path, append_many)
    other = OTHERS[kind](numbers(append_many.old))
    pack(tmp_path / "other", other, checksum=checksum)
    refill(checker.folder / TARGET, (tmp_path / "other").read_bytes())
    with pytest.raises(StorageError, match="not written for this file"):
        checker.operation.see(checker.folder)
    with pytest.raises(StorageError, match="not written for this file"):
        checker.operation.follow(checker.folder, checker.inputs)
    (checker.folder / JOURNAL).unlink()
    assert (other, None) == checker.operation.see(checker.folder)


def test_one_chunk_needs_no_journal(tmp_path):
    """Nothing of it stays that a journal could be known by."""
    for old in (0, 400):
        pack(tmp_path / TARGET, numbers(old))
        (tmp_path / "new").write_bytes(numbers(1500, 5))
        os.chmod(tmp_path / TARGET, 0o640)
        disk = Created()
        with replaced_disk(disk):
            append(tmp_path / TARGET, tmp_path / "new")
        assert [True] == [name.endswith(".tmp") for name in disk.names]
        assert 0o640 == (tmp_path / TARGET).stat().st_mode & 0o777
        assert ["new", TARGET] == sorted(os.listdir(tmp_path), key=len)
        found, _ = bloscpack.unpack_bytes_from_file(tmp_path / TARGET)
        assert numbers(old) + numbers(1500, 5) == found


def test_one_chunk_with_a_hard_link(tmp_path):
    """A copy would break the link, and no journal could identify the file."""
    pack(tmp_path / TARGET, numbers(400), metadata={"a": 1})
    before = (tmp_path / TARGET).read_bytes()
    os.link(tmp_path / TARGET, tmp_path / "link")
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(UsageError, match="'2' hard links and can't be") as raised:
        append(tmp_path / TARGET, tmp_path / "new")
    assert str(tmp_path / TARGET) == raised.value.filename
    assert "Remove the other links" in str(raised.value)
    assert before == (tmp_path / "link").read_bytes()
    assert {TARGET, "link", "new"} == {*os.listdir(tmp_path)}
    os.unlink(tmp_path / "link")
    append(tmp_path / TARGET, tmp_path / "new")
    expected = numbers(400) + b"new", {"a": 1}
    assert expected == bloscpack.unpack_bytes_from_file(tmp_path / TARGET)


def test_several_chunks_with_a_hard_link(tmp_path):
    pack(tmp_path / TARGET, random.Random(1).randbytes(2500))
    os.link(tmp_path / TARGET, tmp_path / "link")
    (tmp_path / "new").write_bytes(b"new")
    append(tmp_path / TARGET, tmp_path / "new")
    assert os.path.samefile(tmp_path / TARGET, tmp_path / "link")
    found, _ = bloscpack.unpack_bytes_from_file(tmp_path / "link")
    assert random.Random(1).randbytes(2500) + b"new" == found


def test_first_chunk_too_short_for_a_witness(tmp_path):
    """A chunk of zeros takes fewer bytes than a witness must have."""
    pack(tmp_path / TARGET, bytes(2000), checksum="None")
    assert 64 > planned_append((tmp_path / TARGET).read_bytes(), 9)[2][1] - 544
    (tmp_path / "new").write_bytes(b"new")
    disk = Created()
    with replaced_disk(disk):
        append(tmp_path / TARGET, tmp_path / "new")
    assert [True] == [name.endswith(".tmp") for name in disk.names]
    expected = bytes(2000) + b"new", None
    assert expected == bloscpack.unpack_bytes_from_file(tmp_path / TARGET)


class Created(WatchedDisk):
    """Notes the names of new files."""

    def __init__(self):
        self.names = []

    def do(self, kind, call, *arguments):
        if kind == "create":
            self.names.append(arguments[0])
        return super().do(kind, call, *arguments)


def test_file_that_was_moved_without_its_journal(tmp_path):
    checker = half_done(tmp_path)
    path, journal_path = checker.folder / TARGET, checker.folder / JOURNAL
    path.rename(checker.folder / "moved")
    with pytest.raises(StorageError, match="of a file that had the name"):
        bloscpack.pack_bytes_to_file(b"new", path)
    assert ["moved", JOURNAL] == sorted(os.listdir(checker.folder), key=len)
    (checker.folder / "moved").rename(path)
    assert checker.old == checker.operation.see(checker.folder)
    assert journal_path.exists()


def test_journal_is_no_output(tmp_path):
    checker = half_done(tmp_path)
    with pytest.raises(StorageError, match="is a journal, without which"):
        bloscpack.pack_bytes_to_file(b"new", checker.folder / JOURNAL)
    assert checker.old == checker.operation.see(checker.folder)


def test_output_with_the_name_of_a_journal(tmp_path):
    """Readers and writers of the file would refuse it."""
    path, name = tmp_path / "x.blp", tmp_path / "x.blp.journal"
    bloscpack.pack_bytes_to_file(b"old", path)
    with pytest.raises(StorageError, match="is the name of the journal of"):
        bloscpack.pack_bytes_to_file(b"new", name)
    assert not name.exists()
    path.unlink()
    bloscpack.pack_bytes_to_file(b"new", name)
    assert (b"new", None) == bloscpack.unpack_bytes_from_file(name)


@pytest.mark.skipif(os.name != "posix" or not os.getuid(), reason="root reads all")
def test_file_with_a_journal_that_can_not_be_read(tmp_path):
    checker = half_done(tmp_path)
    os.chmod(checker.folder / TARGET, 0o200)
    with pytest.raises(StorageError, match="it can't be restored"):
        bloscpack.pack_bytes_to_file(b"new", checker.folder / TARGET)
    os.chmod(checker.folder / TARGET, 0o600)
    assert checker.old == checker.operation.see(checker.folder)


def test_copy_of_the_folder(tmp_path):
    """A copy with the new head may be the complete new state: it is refused."""
    checker = half_done(tmp_path)
    shutil.copytree(checker.folder, tmp_path / "copy")
    with pytest.raises(StorageError, match="not written for this file"):
        checker.operation.see(tmp_path / "copy")
    assert checker.old == checker.operation.see(checker.folder)


def test_copy_of_the_folder_with_the_old_head(tmp_path):
    checker = half_done(tmp_path)
    with open(checker.folder / TARGET, "r+b") as fp:
        _, old = next(accepted(checker.folder / TARGET).old_bytes())
        fp.write(old[:32])
    shutil.copytree(checker.folder, tmp_path / "copy")
    assert checker.old == checker.operation.see(tmp_path / "copy")
    checker.operation.follow(tmp_path / "copy", checker.inputs)
    assert [TARGET] == os.listdir(tmp_path / "copy")


def test_unfinished_journal_is_ignored_and_then_removed(tmp_path):
    checker = Checker(RewriteMetadata(), tmp_path)
    new = checker.operation.see(checker.folder)
    for content in (b"", b"blpk", b"blpkjrnl\1", bytes(500)):
        (checker.folder / JOURNAL).write_bytes(content)
        assert new == checker.operation.see(checker.folder)
        assert (checker.folder / JOURNAL).exists()
        with open_locked(
            checker.folder / TARGET
        ):  # nothing is said: nothing was changed
            assert not (checker.folder / JOURNAL).exists()


# Hard names


def appended_under(name, tmp_path):
    """Append to a file with a given name; return the names in its folder."""
    plain = random.Random(1).randbytes(5000)
    (tmp_path / "new").write_bytes(plain)
    bloscpack.pack_bytes_to_file(plain, name, 1000)
    append(name, tmp_path / "new")
    rewrite_on_the_way(name)
    assert (2 * plain, None) == bloscpack.unpack_bytes_from_file(name)
    return sorted(os.listdir(tmp_path))


def rewrite_on_the_way(name):
    """Read while a change is under way."""
    expected = bloscpack.unpack_bytes_from_file(name)
    old = Path(name).read_bytes()
    extents, head, unchanged = planned_append(old, 1)
    with (
        open_locked(name) as locked_file,
        locked_file.change(extents, head, unchanged) as change,
    ):
        change.overwrite(0, head)
        change.overwrite(len(old) - 9, bytes(9))
        assert expected == bloscpack.unpack_bytes_from_file(name)
        change.overwrite(len(old) - 9, old[-9:])
        change.overwrite(0, old[:32])


@pytest.mark.parametrize("name", ["x" * 247, "ä" * 123, ".hidden", "a b\n", "-rf", "é"])
def test_names(tmp_path, name):
    assert sorted(["new", name]) == appended_under(tmp_path / name, tmp_path)


def test_name_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ["file", "new"] == appended_under("file", tmp_path)


def test_link_to_a_link_in_another_folder(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "link").symlink_to("file")
    (tmp_path / "link").symlink_to(os.path.join("far", "link"))
    monkeypatch.chdir(tmp_path)
    assert ["far", "link", "new"] == appended_under("link", tmp_path)
    assert ["file", "link"] == sorted(os.listdir("far"))


def test_name_that_has_no_room_for_a_journal(tmp_path):
    path = tmp_path / ("x" * 255)
    path.write_bytes(bloscpack.pack_bytes_to_bytes(b"plain" * 100, 100))
    before = path.read_bytes()
    (tmp_path / "new").write_bytes(b"new")
    with pytest.raises(OSError, match="too long") as raised:
        append(path, tmp_path / "new")
    assert str(path) in raised.value.filename
    assert before == path.read_bytes()
    assert (b"plain" * 100, None) == bloscpack.unpack_bytes_from_file(path)


def test_folder_that_takes_no_journal(tmp_path):
    class Denied(WatchedDisk):
        def create(self, name, mode):
            raise PermissionError(13, "Permission denied", name)

    path = tmp_path / TARGET
    bloscpack.pack_bytes_to_file(b"plain" * 100, path, metadata={})
    before = path.read_bytes()
    with replaced_disk(Denied()):
        for change in (
            lambda: append(path, __file__),
            lambda: rewrite_metadata(path, {"n": 1}),
            lambda: bloscpack.pack_bytes_to_file(b"new", path),
        ):
            with pytest.raises(PermissionError) as raised:
                change()
            assert str(path) in raised.value.filename
    assert [TARGET] == os.listdir(tmp_path)
    assert before == path.read_bytes()


def test_name_of_the_journal_is_taken_by_a_folder(tmp_path):
    path = tmp_path / TARGET
    bloscpack.pack_bytes_to_file(b"plain" * 100, path)
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(OSError, match=JOURNAL):
        quietly(append, path, __file__)
    with pytest.raises((OSError, FormatError), match=JOURNAL):
        bloscpack.unpack_bytes_from_file(path)
