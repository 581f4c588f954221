"""Journals that somebody planted: nobody reads or restores the bytes of a stranger.

The attacks are made with real files, users and permission bits. Tests with other users
need root, and change the effective user of this process.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import socket
import struct
import subprocess
import sys
import time

import builders
import pytest
from crash.operations import JOURNAL, TARGET, refill
from support import as_user, environment, needs_root

import bloscpack
from bloscpack._commit import journal, locking, trust
from bloscpack._commit.locking import open_locked
from bloscpack.append import append, rewrite_metadata
from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.cli import main
from bloscpack.exceptions import StorageError
from bloscpack.headers import MetadataHeader
from bloscpack.verify import verify

pytestmark = pytest.mark.usefixtures("usual_umask")
needs_owners = pytest.mark.skipif(os.name != "posix", reason="needs owners")

PLAIN = random.Random(1).randbytes(2500)
PACKED = builders.packed(PLAIN, entries=9, metadata={"a": 1})
OWNER, STRANGER, MEMBER = 12345, 23456, 34567


@pytest.fixture
def path(open_folder):
    path = open_folder / TARGET
    path.write_bytes(PACKED)
    path.chmod(0o644)
    return path


def plant(path, content):
    """Write the journal of a file."""
    name = path.with_name(JOURNAL)
    name.write_bytes(content)
    name.chmod(0o600)
    return name


def genuine(path):
    """Return the complete journal of an append to a file."""
    planned = builders.planned_append(path.read_bytes(), 700)
    with path.open("rb") as fp:
        content = bytearray(b"".join(journal.encode(fp, *planned)))
    content[journal.COMPLETE_FLAG_OFFSET] = 1
    return bytes(content)


def forged(path, witness=b"blpk", extents=None, evil=None):
    """Return a journal with the right digest that makes a reader see other bytes."""
    evil = bloscpack.pack_bytes_to_bytes(b"evil " * 9) if evil is None else evil
    length = len(evil)
    content = struct.pack(
        "<8sBB6xqQqqq32sqqq",
        *(b"blpkjrnl", 1, 0, length, path.stat().st_ino, 1, 0, len(witness)),
        hashlib.blake2b(2 * witness, digest_size=32).digest(),
        *(0, length, 1),
    )
    content += b"X" + evil
    content = bytearray(content + hashlib.sha256(content).digest())
    content[9] = 1
    return bytes(content)


USES = {
    "unpack": lambda path: bloscpack.unpack_bytes_from_file(path),
    "verify": lambda path: verify(path),
    "append": lambda path: append(path, os.devnull),
    "metadata": lambda path: rewrite_metadata(path, {"a": 2}),
    "replace": lambda path: bloscpack.pack_bytes_to_file(b"new", path),
}


def assert_refused(path, match):
    """Assert that every use refuses the journal, names it, and changes nothing."""
    name = path.with_name(JOURNAL)
    before = path.read_bytes()
    status = os.lstat(name)
    for use in USES.values():
        with pytest.raises(StorageError, match=match) as raised:
            use(path)
        assert "'%s'" % name in str(raised.value)
        assert before == path.read_bytes()
        assert os.path.samestat(status, os.lstat(name))
    assert {TARGET, JOURNAL} <= set(os.listdir(path.parent))


# What was planted


def test_journal_that_fits_any_file(path, capsys):
    """The witness is the magic of every file; the extent is the whole file."""
    plant(path, forged(path))
    assert_refused(path, "is refused: expected a new head that fills")
    with pytest.raises(SystemExit):
        main(["verify", str(path)])
    assert "ok" not in capsys.readouterr().out


@pytest.mark.parametrize("flag", [0, 1])
def test_whole_file_as_an_extent(path, flag):
    """With a witness inside, of the right length, and a head that fits."""
    size = len(PACKED)
    with path.open("rb") as fp:
        parts = journal.encode(fp, [(0, size)], PACKED, (200, 300))
        content = bytearray(b"".join(parts))
    content[9] = flag
    plant(path, content)
    assert_refused(path, "expected a witness of at least '64' bytes inside")


@pytest.mark.parametrize("length", [0, 1, 63])
def test_witness_that_is_too_short(path, length):
    extents, head, (start, _) = builders.planned_append(PACKED, 700)
    with path.open("rb") as fp:
        content = b"".join(journal.encode(fp, extents, head, (start, start + length)))
    plant(path, content)
    assert_refused(path, "expected a witness of at least '64' bytes inside")


def kibibytes_used_by(code, *arguments):
    """Return by how much a process grows that runs `code`, after its imports."""
    lines = (
        "import resource, sys, bloscpack",
        "from bloscpack import file_io",
        "from bloscpack._commit import trust",
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
        code,
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    # macOS gives bytes.
    return int(done.stdout) // (2**10 if sys.platform == "darwin" else 1)


def test_sparse_journal_costs_neither_memory_nor_time(path):
    name = plant(path, b"")
    head = bytearray(genuine(path))
    struct.pack_into("<q", head, 128, 3 * 2**30)
    with open(name, "r+b") as fp:
        fp.write(head)
        fp.truncate(3 * 2**30)
        fp.seek(-1, os.SEEK_END)
        fp.write(b"x")
    start = time.perf_counter()
    assert_refused(path, "expected at most twice the size of the file")
    code = "try: bloscpack.unpack_bytes_from_file(sys.argv[1])\nexcept OSError: pass\n"
    used = kibibytes_used_by(code, path)
    assert time.perf_counter() - start < 5
    assert used < 64 * 2**10


def test_forged_room_for_metadata_costs_no_memory(path):
    """File and journal take no room on the disk either."""
    size = 100 * 2**20
    header = MetadataHeader.decode(PACKED[32:64])
    stop = 64 + header.max_meta_size
    header.max_meta_size += size
    with path.open("r+b") as fp:
        fp.seek(32)
        fp.write(header.encode())
        fp.seek(stop + size)
        fp.write(PACKED[stop:])
    extents = [(0, stop + size + CHECKSUMS_LOOKUP[header.meta_checksum].size)]
    witness = path.stat().st_size - 500, path.stat().st_size
    name = path.with_name(JOURNAL)
    with path.open("rb") as fp, name.open("wb") as out_fp:
        for part in journal.encode(fp, extents, fp.read(extents[0][1]), witness):
            out_fp.write(part)
        journal.mark_complete(out_fp)
    name.chmod(0o600)
    code = (
        "with open(sys.argv[1], 'rb') as fp:\n"
        "    assert trust.load(sys.argv[2], fp) is not None\n"
    )
    assert kibibytes_used_by(code, path, name) < 32 * 2**10


# Where it was planted


@needs_owners
def test_hard_link(path):
    name = plant(path, genuine(path))
    os.link(name, path.with_name("other"))
    assert_refused(path, "expected one hard link, found '2'")
    os.unlink(path.with_name("other"))
    assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)


@needs_owners
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o664])
def test_journal_that_others_can_write(path, mode):
    name = plant(path, genuine(path))
    name.chmod(mode)
    match = "expected no other user who may write it, found the permission bits '%o'"
    assert_refused(path, match % mode)
    path.chmod(0o664)
    assert_refused(path, match % mode)
    # Everybody may write the file itself, so the journal gives nobody more.
    path.chmod(0o666)
    assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)


NO_FILES = {
    "link": lambda name, there: os.symlink(there, name),
    "link to nothing": lambda name, there: os.symlink("nothing", name),
    "pipe": lambda name, there: os.mkfifo(name),
    "folder": lambda name, there: os.mkdir(name),
    "device": lambda name, there: os.symlink("/dev/zero", name),
    "socket": lambda name, there: socket.socket(socket.AF_UNIX).bind(str(name)),
}


@needs_owners
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", NO_FILES)
def test_no_regular_file(tmp_path, monkeypatch, kind):
    path = tmp_path / TARGET
    path.write_bytes(PACKED)
    (tmp_path / "there").write_bytes(genuine(path))
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    NO_FILES[kind](JOURNAL, "there")
    assert_refused(path, "has the name of a journal, but is no regular file")


@needs_owners
def test_what_is_opened_is_what_is_checked(path, monkeypatch):
    """A file that is replaced by a link between two calls is not followed."""
    name = plant(path, genuine(path))
    name.rename(path.with_name("there"))
    monkeypatch.setattr(os, "lstat", lambda name: os.stat(path))
    name.symlink_to("there")
    with (
        path.open("rb") as fp,
        pytest.raises(StorageError, match="is no regular file"),
    ):
        trust.load(str(name), fp)


@needs_owners
def test_journal_that_is_removed_while_it_is_opened(path, monkeypatch):
    """The change is complete, or has been undone: there is no journal."""
    name = plant(path, genuine(path))
    real_open = os.open

    def open_and_remove(*arguments):
        descriptor = real_open(*arguments)
        monkeypatch.setattr(os, "open", real_open)
        name.unlink()
        return descriptor

    with path.open("rb") as fp:
        monkeypatch.setattr(os, "open", open_and_remove)
        assert trust.load(str(name), fp) is None


@needs_root
def test_journal_that_is_removed_while_it_can_not_be_read(path, monkeypatch):
    """A reader is not allowed to read it yet, and asks for its size too late."""
    name = plant(path, b"")
    real_open = os.open

    def refuse_and_remove(*arguments):
        monkeypatch.setattr(os, "open", real_open)
        try:
            return real_open(*arguments)
        finally:
            with as_root():
                name.unlink()

    with as_user(STRANGER), path.open("rb") as fp:
        monkeypatch.setattr(os, "open", refuse_and_remove)
        assert trust.load(str(name), fp) is None


FAILURES = [
    (MemoryError(), StorageError, "there is no memory for the journal"),
    (OSError(5, "Input/output error"), OSError, "Input/output error"),
]


@pytest.mark.parametrize(("error", "expected", "match"), FAILURES)
def test_journal_that_can_not_be_opened(path, monkeypatch, error, expected, match):
    name = plant(path, genuine(path))

    def failing(*arguments):
        raise error

    with path.open("rb") as fp:
        monkeypatch.setattr(os, "open", failing)
        with pytest.raises(expected, match=match):
            trust.load(str(name), fp)


# Who planted it


@contextlib.contextmanager
def as_root():
    """Be root for a while, inside of `as_user`."""
    old = os.geteuid()
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(old)


@needs_root
def test_journal_that_a_writer_is_creating(path):
    """It is empty as long as only the writer can read it."""
    plant(path, b"")
    path.chmod(0o644)
    with as_user(STRANGER):
        assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660, 0o664])
def test_sticky_folder(path, mode):
    """A stranger may create files there, but not write or remove those of others."""
    path.parent.chmod(0o1777)
    os.chown(path, OWNER, OWNER)
    path.chmod(mode)
    content = genuine(path)
    with as_user(STRANGER):
        name = plant(path, content)
    with as_user(OWNER), pytest.raises(StorageError, match="can't be read") as raised:
        bloscpack.unpack_bytes_from_file(path)
    assert str(name) in str(raised.value)
    name.chmod(0o644)
    match = "an owner who may write the file, found the user '%d'" % STRANGER
    assert_refused(path, match)
    with as_user(OWNER):
        for use in (bloscpack.unpack_bytes_from_file, lambda p: append(p, os.devnull)):
            with pytest.raises(StorageError, match=match) as raised:
                use(path)
            assert "move the file to another folder" in str(raised.value)
        with pytest.raises(PermissionError):
            name.unlink()
    assert PACKED == path.read_bytes()


OWNERS = [
    (OWNER, 0o600, True),
    (0, 0o600, True),
    (MEMBER, 0o600, False),
    (MEMBER, 0o640, False),
    (MEMBER, 0o660, True),
    (STRANGER, 0o660, False),
    (STRANGER, 0o664, False),
    (STRANGER, 0o666, True),
]


@needs_root
@pytest.mark.parametrize("primary", [False, True])
@pytest.mark.parametrize(("uid", "mode", "accepted"), OWNERS)
def test_owners(path, monkeypatch, uid, mode, accepted, primary):
    import grp
    import pwd

    os.chown(path, OWNER, OWNER)
    path.chmod(mode)
    os.chown(plant(path, genuine(path)), uid, STRANGER)
    users = {MEMBER: ("member", OWNER if primary else 99), STRANGER: ("stranger", 99)}

    def user_of(uid):
        name, gid = users[uid]
        return pwd.struct_passwd([name, "x", uid, gid, "", "/", ""])

    def group_of(gid):
        members = [] if primary else ["member", "other"]
        return grp.struct_group(["group", "x", gid, members])

    monkeypatch.setattr(pwd, "getpwuid", user_of)
    monkeypatch.setattr(grp, "getgrgid", group_of)
    if accepted:
        assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)
    else:
        assert_refused(path, "who may write the file, found the user '%d'" % uid)


@needs_root
def test_owner_without_a_name(path):
    """A user or group that the system does not know is no member."""
    os.chown(path, OWNER, OWNER)
    path.chmod(0o660)
    os.chown(plant(path, genuine(path)), STRANGER, OWNER)
    assert_refused(path, "an owner who may write the file")


# Entries: the owner, a named user, the group, the mask, others.
ACL = [(1, 6, -1), (2, 6, STRANGER), (4, 4, -1), (16, 6, -1), (32, 4, -1)]


@needs_root
def test_bits_of_the_group_beside_an_access_control_list(path, monkeypatch):
    """They are the mask of the list; the group itself may have fewer rights."""
    os.chown(path, OWNER, OWNER)
    monkeypatch.setattr(trust, "_is_member", lambda uid, gid: True)
    os.chown(plant(path, genuine(path)), MEMBER, OWNER)
    path.chmod(0o664)
    assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)
    content = struct.pack("<I", 2)
    content += b"".join(struct.pack("<HHi", *entry) for entry in ACL)
    try:
        os.setxattr(path, "system.posix_acl_access", content)
    except OSError:
        pytest.skip("no access control lists")
    assert 0o664 == path.stat().st_mode & 0o777
    assert_refused(path, "an owner who may write the file")


def test_system_without_owners(path, monkeypatch):
    name = plant(path, genuine(path))
    name.chmod(0o666)
    monkeypatch.delattr(os, "geteuid", raising=False)
    assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)


def test_system_without_groups(monkeypatch, path):
    monkeypatch.setitem(sys.modules, "grp", None)
    path.chmod(0o660)
    with path.open("rb") as fp:
        assert trust.may_write(path.stat().st_uid, fp)
        assert not trust.may_write(path.stat().st_uid + 1, fp)


# What writers do about it


@needs_root
def test_writer_whose_journal_would_be_refused_changes_a_copy(path, open_folder):
    """By an access control list, for example, which the permission bits do not show."""
    path.parent.chmod(0o777)
    os.chown(path, OWNER, OWNER)
    path.chmod(0o666)
    inode = path.stat().st_ino
    (open_folder / "new").write_bytes(b"new")
    with as_user(STRANGER), open(path, "r+b"):
        os.seteuid(0)
        path.chmod(0o644)
        os.seteuid(STRANGER)
        with pytest.raises(PermissionError):
            append(path, open_folder / "new")
    path.chmod(0o666)
    with as_user(STRANGER):
        append(path, open_folder / "new")
    assert inode == path.stat().st_ino
    assert PLAIN + b"new" == bloscpack.unpack_bytes_from_file(path)[0]


def test_copy_where_no_journal_of_this_user_is_accepted(path, open_folder, monkeypatch):
    monkeypatch.setattr(trust, "may_write", lambda uid, fp: False)
    inode = path.stat().st_ino
    (open_folder / "new").write_bytes(b"new")
    append(path, open_folder / "new")
    assert inode != path.stat().st_ino
    assert PLAIN + b"new" == bloscpack.unpack_bytes_from_file(path)[0]


@needs_root
def test_one_chunk_of_another_owner(path, open_folder):
    path.write_bytes(builders.packed(b"one"))
    os.chown(path, OWNER, OWNER)
    (open_folder / "new").write_bytes(b"new")
    append(path, open_folder / "new")
    assert b"onenew" == bloscpack.unpack_bytes_from_file(path)[0]
    assert OWNER == path.stat().st_uid


@needs_root
@pytest.mark.parametrize("others", [0, 4])
def test_copy_that_its_owner_could_not_read(path, open_folder, others):
    """A user with an entry in the access control list of the file appends."""
    entries = [(1, 6, 2**32 - 1), (2, 6, STRANGER), (4, 4, 2**32 - 1)]
    entries += [(16, 6, 2**32 - 1), (32, others, 2**32 - 1)]
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)
    os.chown(path, OWNER, STRANGER)
    try:
        os.setxattr(path, "system.posix_acl_access", content)
    except (AttributeError, OSError) as error:
        pytest.skip("no access control lists: %s" % error)
    path.parent.chmod(0o777)
    (open_folder / "new").write_bytes(b"new")
    with as_user(STRANGER):
        if others:
            append(path, open_folder / "new")
        else:
            with pytest.raises(StorageError, match="the owner of the file could not"):
                append(path, open_folder / "new")
    with as_user(OWNER):
        expected = PLAIN + b"new" if others else PLAIN
        assert expected == bloscpack.unpack_bytes_from_file(path)[0]
    assert {TARGET, "new"} == set(os.listdir(path.parent))


@needs_owners
def test_file_system_that_gives_journals_other_permission_bits(path, monkeypatch):
    def careless(fp, name, file):
        os.chmod(fp.fileno(), 0o777)

    monkeypatch.setattr("bloscpack._commit.end_changes._share_reading", careless)
    with pytest.raises(StorageError, match="without which the file can't be changed"):
        rewrite_metadata(path, {"a": 2})
    assert PACKED == path.read_bytes()
    assert [TARGET] == os.listdir(path.parent)


# What a writer says that can't undo its change


def interrupted(path):
    """Leave a file in the middle of a change."""
    planned = builders.planned_append(PACKED, 700)
    with open_locked(path) as locked_file:
        change = locked_file.change(*planned)
        change.__enter__()
        change.overwrite(planned[0][2][0], b"changed")


REMAINS = "the journal '%s' remains: readers see the old content, and the next writer"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt])
def test_message_of_a_writer_that_can_not_undo_its_change(path, monkeypatch, error):
    def failing(*given):
        raise OSError(30, "Read-only file system")

    planned = builders.planned_append(PACKED, 700)
    monkeypatch.setattr(locking, "restore_bytes", failing)
    remains = REMAINS % path.with_name(JOURNAL)
    expected = pytest.raises((OSError, KeyboardInterrupt))
    with expected as raised, open_locked(path) as locked_file:
        change = locked_file.change(*planned)
        change.__enter__()
        change.overwrite(planned[0][2][0], b"changed")
        if isinstance(error, OSError):
            raise error
        with pytest.warns(RuntimeWarning, match="remains: readers see the old"):
            locking.add_that_journal_remains(error(), locked_file.journal_name)
        raise OSError(5, "Input/output error")
    assert remains in str(raised.value)
    assert str(raised.value).startswith("[Errno 5] Input/output error; the journal")
    assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)
    with pytest.raises(OSError, match="Read-only") as raised:
        append(path, os.devnull)
    assert remains in str(raised.value)
    monkeypatch.undo()
    with pytest.warns(RuntimeWarning, match="has been restored"), open_locked(path):
        pass
    assert PACKED == path.read_bytes()


def test_message_where_the_journal_was_replaced_meanwhile(path):
    def change_and_fail():
        planned = builders.planned_append(PACKED, 700)
        with open_locked(path) as locked_file, locked_file.change(*planned):
            refill(locked_file.journal_name, b"planted")
            raise OSError(5, "Input/output error")

    with pytest.raises(StorageError, match="has the name of a journal") as raised:
        change_and_fail()
    assert "remains" not in str(raised.value)
    assert PACKED == path.read_bytes()


@needs_root
def test_writer_who_may_not_remove_the_journal(path, open_folder):
    """In a sticky folder the journal of another user can be applied, but stays."""
    interrupted(path)
    path.parent.chmod(0o1777)
    os.chown(path, OWNER, OWNER)
    os.chown(path.with_name(JOURNAL), 0, 0)
    path.with_name(JOURNAL).chmod(0o644)
    with as_user(OWNER):
        with pytest.raises(PermissionError) as raised:
            append(path, os.devnull)
        assert REMAINS % path.with_name(JOURNAL) in str(raised.value)
        assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)
    assert PACKED == path.read_bytes()


@needs_root
def test_empty_file_that_may_not_be_removed(path, open_folder):
    """It is no journal, so the message does not promise that it will be applied."""
    name = plant(path, b"")
    name.chmod(0)
    os.chown(name, STRANGER, STRANGER)
    path.parent.chmod(0o1777)
    os.chown(path, OWNER, OWNER)
    with as_user(OWNER), pytest.raises(PermissionError, match="not perm") as raised:
        append(path, os.devnull)
    assert str(name) == raised.value.filename
    assert "remains" not in str(raised.value)
    assert PACKED == path.read_bytes()


@needs_root
def test_writer_who_may_not_write_the_file(path):
    interrupted(path)
    path.chmod(0o444)
    path.with_name(JOURNAL).chmod(0o644)
    with as_user(STRANGER):
        with pytest.raises(PermissionError) as raised:
            append(path, os.devnull)
        assert REMAINS % path.with_name(JOURNAL) in str(raised.value)
        assert (PLAIN, {"a": 1}) == bloscpack.unpack_bytes_from_file(path)


# The bytes of the head


@pytest.mark.parametrize(
    ("expected", "head"),
    [
        (None, b"abcd"),
        (None, b"wxyz"),
        (None, b"axcz"),
        (None, b"\0\0\0\0"),
        (None, b""),
        (0, b"z"),
        (2, b"axaz"),
        (3, b"wx\0q"),
    ],
)
def test_first_byte_that_is_neither_old_nor_new(expected, head):
    assert expected == trust._first_foreign(head, b"abcd", b"wxyz")


def test_a_large_head_takes_little_time():
    size = 1 << 26
    begin = time.process_time()
    assert size - 1 == trust._first_foreign(
        b"\1" * (size - 1) + b"\3", b"\1" * size, b"\2" * size
    )
    assert time.process_time() - begin < 2  # a loop in Python takes ten seconds


@pytest.mark.parametrize("number", [errno.ELOOP, errno.EMLINK])
def test_errors_of_systems_for_a_symbolic_link(monkeypatch, number):
    def refuse(name, flags):
        raise OSError(number, os.strerror(number), name)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="is no regular file"):
        trust._open("a.journal")
