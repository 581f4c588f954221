"""Decide whether a journal is used: one that was planted or forged is refused.

A journal is obeyed only if all users who could have written it may also change its file
or dataset. `load` applies this to the journal of a file, `check_in_dataset` to the
journal of a dataset and to the folder that it is in, and `is_believed` to a folder
around a dataset.

Strategy: three lists of rules, checked in order. Each yields what is expected of
`JournalEvidence`, and what was found instead, until a rule is broken.

- `_writer_rules` say who may have written a journal, of a file or a dataset. They need
  the status of the two files.
- `_content_rules` also need the fields of the journal and of the old file header. They
  bound every size, so they come before bytes are hashed or memory is allocated.
- `_identity_rules` compare the journal with the bytes of the file.

A journal that breaks a rule is refused with an error that names journal and rule, by
readers and by writers; nothing is changed. An incomplete journal is ignored instead.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import struct

from .._storage.base import READ_SIZE
from .._storage.folder_store import FolderStore, Held
from .._storage.local import whole_file
from .._storage.paths import is_missing
from ..constants import MAX_DOCUMENT
from ..exceptions import FormatError, StorageError
from . import journal
from .ownership import ACL

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from .._storage.base import Storage
    from .._storage.protocols import BinaryFile
    from .._storage.store import Store

    class WithDescriptor(Protocol):
        """A file or folder that is open."""

        def fileno(self) -> int:
            """Return its file descriptor."""

    # What is expected, and what was found instead; None if the rule is kept.
    Rule = tuple[str, str | None]

# Without the journal the file may be a mixture of two states.
REMEDY = (
    "Copy the file alone to another folder and verify the copy: if it is whole, remove "
    "the journal"
)
REMEDY_OF_STRANGERS = (
    REMEDY + "; if you may not remove it, move the file to another folder"
)
REMEDY_OF_LINKS = (
    "If the journal is genuine, remove its other names; a copy of file and journal in "
    "another folder is valid as well"
)
REMEDY_OF_BITS = (
    "If the journal is genuine, take the permission to write it from group and others "
    "(chmod go-w). Otherwise: " + REMEDY
)
REMEDY_OF_OTHER_FILES = (
    "It was not written for this file, or the file has been copied or replaced since. "
    + REMEDY
)

REMEDY_OF_DATASETS = (
    "Copy the dataset without the folder '.bloscpack' and verify the copy: if it is "
    "whole, remove that folder"
)
# The folder, inside of a dataset, with the files that are not committed yet.
CHANGES = ".bloscpack"
# The file in it that commits a change of several files.
JOURNAL = CHANGES + "/journal"

WITNESS_RULE = (
    "a witness of at least '%d' bytes inside the old length and outside the extents"
    % journal.MIN_WITNESS
)
# What a journal belongs to, and what is examined: see `_writer_rules`.
OF_FILE, OF_DATASET, FOLDER_OF_CHANGES = range(3)


class JournalEvidence:
    """A journal, or the folder that it is in, and the file or dataset that it changes.

    ``status`` and ``of_file`` are the status of the journal and of the file. ``saved``
    has the fields of the journal of a file, and ``storage`` the bytes of the file, once
    they are needed.
    """

    saved: journal.Journal
    storage: Storage

    def __init__(
        self, status: os.stat_result, file: WithDescriptor, kind: int = OF_FILE
    ) -> None:
        self.status = status
        self.file = file
        self.kind = kind
        self.of_file = (
            file.status if isinstance(file, Held) else os.fstat(file.fileno())
        )

    def read_old(self, offset: int, size: int) -> bytes:
        """Return bytes of the file as they were before the change."""
        data = bytearray(self.storage.read_at(offset, size))
        self.saved.overlay(offset, memoryview(data))
        return bytes(data)


def may_write(uid: int, file: WithDescriptor) -> bool:
    """Return whether a user may write a file, by its owner and permission bits.

    The bits of the group say nothing where the file has an access control list.
    """
    return _has_bit(uid, file, stat.S_IWOTH)


def may_read(uid: int, file: WithDescriptor) -> bool:
    """Return whether a user may read a file, in the same way as `may_write`."""
    return _has_bit(uid, file, stat.S_IROTH)


def _has_bit(uid: int, file: WithDescriptor, bit: int) -> bool:
    """Return whether a user has a permission bit, which is given for others."""
    status = os.fstat(file.fileno())
    if uid in (0, status.st_uid):
        return True
    if _is_sticky(status):  # other users can change no file of its owner there
        return False
    if status.st_mode & bit:
        return True
    by_group = bool(status.st_mode & bit << 3)
    return by_group and _is_member(uid, status.st_gid) and _acl_of(file) is None


def _is_sticky(status: os.stat_result) -> bool:
    return bool(status.st_mode & stat.S_ISVTX) and stat.S_ISDIR(status.st_mode)


def _acl_of(file: WithDescriptor) -> bytes | None:
    try:
        return os.getxattr(file.fileno(), ACL)
    except (AttributeError, OSError):  # the system or the file has no lists
        return None


def is_unknown_member(file: BinaryFile) -> bool:
    """Return whether only this process knows that its user is of the file's group."""
    if _acl_of(file) is not None:
        return False  # the bits of the group say nothing
    group = os.fstat(file.fileno()).st_gid
    return group in (os.getegid(), *os.getgroups()) and not _is_member(
        os.geteuid(), group
    )


def _is_member(uid: int, gid: int) -> bool:
    try:
        import grp
        import pwd

        user = pwd.getpwuid(uid)
        return user.pw_gid == gid or user.pw_name in grp.getgrgid(gid).gr_mem
    except (ImportError, KeyError):  # the system, user or group is unknown
        return False


# Rules about the two files. Systems without owners skip the second and third.


def _wrong_owner(evidence: JournalEvidence) -> str | None:
    uid = evidence.status.st_uid
    if not hasattr(os, "geteuid") or uid in (0, evidence.of_file.st_uid):
        return None
    # No other user can have made a folder of this user, whom the user database may not
    # know. A change of a single file needs this folder only; a journal must be accepted
    # by other users, too.
    if evidence.kind == FOLDER_OF_CHANGES and uid == os.geteuid():
        return None
    if may_write(uid, evidence.file):
        return None
    return "the user '%d'" % uid


def _others_write(evidence: JournalEvidence) -> str | None:
    mode = stat.S_IMODE(evidence.status.st_mode)
    if not hasattr(os, "geteuid") or not mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    of_file = evidence.of_file
    if not _is_sticky(of_file):
        # Everybody may change the file itself. So it is for all files where the file
        # system has no permission bits.
        if of_file.st_mode & stat.S_IWOTH:
            return None
        # The folder of a dataset is shared with a group.
        is_shared = stat.S_ISDIR(of_file.st_mode) and of_file.st_mode & stat.S_IWGRP
        same_group = of_file.st_gid == evidence.status.st_gid
        if is_shared and same_group and not mode & stat.S_IWOTH:
            return None
    return "the permission bits '%o'" % mode


def _writer_rules(evidence: JournalEvidence) -> Iterator[tuple[str, str | None, str]]:
    """Yield who may have written a journal, what was found, and what the user can do.

    A folder has no rules about links and sizes.
    """
    status, is_folder = evidence.status, evidence.kind == FOLDER_OF_CHANGES
    # New head and old bytes are in the file, or have been there.
    limit, size = (
        2 * evidence.of_file.st_size + journal.OVERHEAD,
        "twice the size of the file",
    )
    file = "the file"
    if evidence.kind != OF_FILE:
        limit, size = MAX_DOCUMENT, "'%d' bytes" % MAX_DOCUMENT
        file = "the folder of the dataset"
    if status.st_nlink != 1 and not is_folder:
        yield "one hard link", "'%d'" % status.st_nlink, REMEDY_OF_LINKS
    owner = "an owner who may write " + file
    yield owner, _wrong_owner(evidence), REMEDY_OF_STRANGERS
    yield "no other user who may write it", _others_write(evidence), REMEDY_OF_BITS
    if status.st_size > limit and not is_folder:
        yield "at most " + size, "'%d' bytes" % status.st_size, REMEDY_OF_STRANGERS


def _wrong_writer(evidence: JournalEvidence) -> tuple[str, str] | None:
    """Return the first of `_writer_rules` that is broken, and what the user can do."""
    holder = "a folder '.bloscpack' with " * (evidence.kind == FOLDER_OF_CHANGES)
    for expected, found, remedy in _writer_rules(evidence):
        if found is not None:
            advice = remedy if evidence.kind == OF_FILE else REMEDY_OF_DATASETS
            return "expected %s%s, found %s" % (holder, expected, found), advice
    return None


# Rules about the fields


def _content_rules(evidence: JournalEvidence) -> Iterator[Rule]:
    saved = evidence.saved
    length, extents, size = saved.length, saved.extents, saved.new_head_size
    if any(saved.reserved):
        yield "zero bytes behind the flag", "%r" % saved.reserved
    # A change cuts a file only after its commit.
    if not 0 < length <= evidence.of_file.st_size:
        yield "an old length of at most the size of the file", "'%d'" % length
    end = 0
    for start, stop in extents:
        if not end <= start < stop <= length:
            found = "'%d' to '%d'" % (start, stop)
            yield "extents that are in order, apart, and inside the old length", found
        end = stop
    if extents[0] != (0, size):
        yield "a new head that fills the first extent", "'%d' bytes" % size
    start, stop = saved.witness
    fits = 0 <= start <= stop - journal.MIN_WITNESS and stop <= length
    if not fits or not all(stop <= a or b <= start for a, b in extents):
        yield WITNESS_RULE, "'%d' to '%d'" % (start, stop)
    from .._format.append_plan import find_overreach

    try:
        wrong = find_overreach(evidence.read_old, extents, length)
    except FormatError as error:
        wrong = "a file that has no valid beginning (%s)" % error
    yield "extents that a change overwrites", wrong


# Rules about the bytes of the file


def _identity_rules(evidence: JournalEvidence) -> Iterator[Rule]:
    saved, is_new = evidence.saved, True
    digest = journal.digest_of_witness(evidence.storage, *saved.witness)
    if digest != saved.witness_digest:
        yield "the witness to be unchanged", "other bytes"
    for start, head, old, new in _blocks_of_head(evidence):
        is_new = is_new and head == new
        # An interrupted write may have replaced a part, or left zeros.
        i = None if head in (old, new) else _first_foreign(head, old, new)
        if i is not None:
            found = "'%d' at byte '%d'" % (head[i], start + i)
            yield "every byte of the head to be old, new or zero", found
    # The head is written last.
    if is_new and evidence.of_file.st_ino & journal.INODE_MASK != saved.inode:
        yield "the same file, or a head that is not completely new", "a copy"


def _first_foreign(head: bytes, old: bytes, new: bytes) -> int | None:
    """Return the index of the first byte that is neither zero, nor old, nor new.

    A hostile file may have a head of gigabytes, so the loop is NumPy's.
    """
    import numpy  # only a change that was interrupted in its last write needs it

    size = min(len(head), len(old), len(new))
    present, before, after = (
        numpy.frombuffer(data, "u1", size) for data in (head, old, new)
    )
    foreign = (present != 0) & (present != before) & (present != after)
    return int(foreign.argmax()) if foreign.any() else None


def _blocks_of_head(
    evidence: JournalEvidence,
) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """Yield offset, present bytes, old bytes and new bytes of the head, in blocks.

    A head contains the room for metadata, which a forged header may make huge.
    """
    for start in range(0, evidence.saved.new_head_size, READ_SIZE):
        new = evidence.saved.new_head(start, READ_SIZE)
        head = evidence.storage.read_at(start, len(new))
        yield start, head, evidence.read_old(start, len(new)), new


def _first_broken(rules: Iterator[Rule]) -> str:
    """Return the first broken rule, in words; '' if all rules are kept."""
    for rule in rules:
        if rule[1] is not None:
            return "expected %s, found %s" % rule
    return ""


def load(name: str, file: BinaryFile) -> journal.Journal | None:
    """Return the journal `name` of the file that is open in `file`.

    None if there is no journal, or an incomplete one: then the file is unchanged.
    Raises `StorageError` if the journal breaks a rule, is damaged, or has an unknown
    version, or if another file has its name.
    """
    try:
        fp = _open(name)
        if fp is None:
            return None
        with fp:
            return _accepted(name, fp, file)
    except MemoryError as error:
        raise StorageError("there is no memory for the journal '%s'" % name) from error


def check_status(name: str, fp: BinaryFile, file: BinaryFile) -> None:
    """Raise `StorageError` if a new journal in `fp` would be refused by its status.

    A file system may give it another owner or other permission bits than requested.
    """
    broken = _wrong_writer(JournalEvidence(os.fstat(fp.fileno()), file))
    if broken:
        raise StorageError(
            "the journal '%s', without which the file can't be changed, would be "
            "refused: %s" % (name, broken[0])
        )


def check_in_dataset(
    dataset: FolderStore, status: os.stat_result, kind: int = OF_DATASET
) -> None:
    """Raise `StorageError` if the journal of a dataset is refused, by its status.

    With the kind `FOLDER_OF_CHANGES` it is the status of the folder that it is in.
    """
    broken = _wrong_writer(JournalEvidence(status, dataset.hold(), kind))
    if broken:
        raise _refused(dataset.path(JOURNAL), *broken)


def folder_of_changes(dataset: FolderStore) -> FolderStore:
    """Return the folder of changes of a dataset.

    Raises `StorageError` if a user who may not change the dataset could write it.
    """
    changes = dataset.subfolder(CHANGES)
    check_in_dataset(dataset, changes.status, FOLDER_OF_CHANGES)
    return changes


def is_believed(around: Held, dataset: Held) -> bool:
    """Return whether all users that can write a folder can change a dataset in it.

    The folder must have the same owner as the dataset. Another owner is accepted if the
    owner can write the dataset, and if one group can write both. A sticky folder is
    refused: it is for users that do not trust each other.
    """
    if not hasattr(os, "geteuid"):
        return True
    outer, inner = around.status, dataset.status
    if _is_sticky(outer):
        return False
    if outer.st_uid != inner.st_uid:
        by_group = outer.st_mode & inner.st_mode & stat.S_IWGRP
        if not by_group or outer.st_mode & stat.S_IWOTH:
            return False
        # No other user can have made a folder of this user.
        if outer.st_uid != os.geteuid() and not may_write(outer.st_uid, dataset):
            return False
    if outer.st_mode & ~inner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return not outer.st_mode & stat.S_IWGRP or (
        outer.st_gid == inner.st_gid and _acl_of(around) == _acl_of(dataset)
    )


def parent_of(store: Store) -> tuple[Store, str] | None:
    """Return the folder around that of a dataset, and the name of the dataset in it.

    None if there is none, or if it is not believed. Nothing in it counts then.
    """
    around = store.parent()
    if around is not None and isinstance(store, FolderStore):
        outer = around[0]
        assert isinstance(outer, FolderStore)
        if not is_believed(outer.hold(), store.hold()):
            return None
    return around


def belongs_to_missing_file(name: str) -> bool:
    """Return whether a journal, which may be complete, is left of a file that is gone.

    Nothing bounds its size, so it is not hashed.
    """
    fp = _open(name)
    if fp is None:
        return False
    with fp:
        finished = _check_kind(name, fp)
        return finished or _fields(name, whole_file(fp))[0] is not None


def _open(name: str) -> io.FileIO | None:
    """Open a regular file for reading; return None if there is none."""
    # No symbolic link is followed. A pipe would wait for a writer without O_NONBLOCK.
    flags = os.O_RDONLY
    for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, flag, 0)
    try:
        descriptor = os.open(name, flags)
    except OSError as error:
        if is_missing(error):
            return None
        # A symbolic link (on FreeBSD EMLINK), or a socket.
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise _no_regular_file(name) from error
        if error.errno == errno.EACCES:
            try:
                size = os.lstat(name).st_size
            except FileNotFoundError:
                size = 0
            if not size:  # a writer is creating it now, or has removed it
                return None
            raise StorageError(
                "the journal '%s' can't be read (%s), and without it the file may be a "
                "mixture of two states. %s"
                % (name, error.strerror, REMEDY_OF_STRANGERS)
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_regular_file(name)
    return io.FileIO(descriptor, "rb")


def _no_regular_file(name: str) -> StorageError:
    return StorageError(
        "'%s' has the name of a journal, but is no regular file: move it away" % name
    )


def _accepted(name: str, fp: BinaryFile, file: BinaryFile) -> journal.Journal | None:
    """Return a journal that keeps all rules; None if it was never completed."""
    evidence = JournalEvidence(os.fstat(fp.fileno()), file)
    evidence.storage = whole_file(file)
    if not evidence.status.st_nlink and not os.path.lexists(name):
        return None  # a writer has removed it since it was opened
    wrong = _wrong_writer(evidence)
    if wrong:
        raise _refused(name, *wrong)
    finished = _check_kind(name, fp)
    # A writer may be writing the journal now, so its length is read after the flag.
    saved, problem = _fields(name, whole_file(fp))
    if saved is None:
        if finished:
            raise _damaged(name, problem)
        return None
    evidence.saved = saved
    broken = _first_broken(_content_rules(evidence))
    # Bytes that a crash kept from the disk break rules too.
    if (not broken or not finished) and not saved.digest_fits():
        if finished:
            raise _damaged(name, "expected the digest of its bytes, found another")
        return None
    broken = broken or _first_broken(_identity_rules(evidence))
    if broken:
        raise _refused(name, broken, REMEDY_OF_OTHER_FILES)
    return saved.keep(fp)


def _check_kind(name: str, fp: BinaryFile) -> bool:
    """Return the flag that says that a journal is complete.

    Raises `StorageError` if the file is no journal, or has an unknown version or flag.
    """
    head = whole_file(fp).read_at(0, journal.SECTOR)
    # A crash may have cut a journal that was not synced, or filled it with zeros.
    if journal.MAGIC.startswith(head.rstrip(b"\0")):
        return False
    size = journal.VERSION_OFFSET
    if not head.startswith(journal.MAGIC):
        raise StorageError(
            "'%s' has the name of a journal, but is none: move it away" % name
        )
    version, flag = (head[i : i + 1] for i in (size, journal.COMPLETE_FLAG_OFFSET))
    if version != bytes([journal.VERSION]):
        raise StorageError(
            "the journal '%s' has version %d, which is not known: change the file with "
            "the release of Bloscpack that wrote it" % (name, version[0])
        )
    if flag > b"\1":
        raise _refused(name, "expected the flag 0 or 1, found '%d'" % flag[0], REMEDY)
    return flag == b"\1"


def _fields(name: str, storage: Storage) -> tuple[journal.Journal | None, str]:
    """Return the fields of a journal; None and the reason if it is incomplete."""
    try:
        saved = journal.Journal(name, storage)
    except struct.error:
        return None, "expected all fields, found '%d' bytes" % storage.size
    if not 1 <= saved.count <= journal.MAX_EXTENTS:
        return None, "expected 1 to %d extents, found '%d'" % (
            journal.MAX_EXTENTS,
            saved.count,
        )
    if saved.new_head_size < 0 or saved.size != storage.size:
        found = saved.size, storage.size
        return None, "expected the '%d' bytes of its fields, found '%d'" % found
    return saved, ""


def _refused(name: str, broken: str, remedy: str) -> StorageError:
    return StorageError("the journal '%s' is refused: %s. %s" % (name, broken, remedy))


def _damaged(name: str, found: str) -> StorageError:
    return StorageError(
        "the journal '%s' is damaged: %s. The change that it belongs to can't be taken "
        "back. %s" % (name, found, REMEDY)
    )
