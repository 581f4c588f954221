"""The part of `independent_datasets` for journals: of files (J1-J3), of datasets."""

from __future__ import annotations

import hashlib
import itertools
import os
import pwd
import re
import stat
import struct

from format.independent_reader import Refused, check, parse_json, read_front

LIMIT = 64 << 20  # of a document


def file_bytes(path: str) -> bytes:
    """Return the content of a file, as its journal has it (J1)."""
    with open(path, "rb") as file:
        data, status = file.read(), os.fstat(file.fileno())
    if not os.path.lexists(path + ".journal"):
        return data
    found = os.lstat(path + ".journal")
    check("J3", stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    check("J3", may_write(found.st_uid, status) and not found.st_mode & stat.S_IWOTH)
    check("J3", found.st_size <= 2 * len(data) + 176)
    with open(path + ".journal", "rb") as file:
        return old_content(data, file.read(), status.st_ino)


def may_write(uid: int, status: os.stat_result) -> bool:
    """Return whether the permission bits of a file allow a user to write it."""
    if uid in (0, status.st_uid) or status.st_mode & stat.S_IWOTH:
        return True
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid in groups


def old_content(data: bytes, journal: bytes, inode: int) -> bytes:
    """Return the content of a file before the change that a journal belongs to."""
    if not journal or journal[:512] == bytes(512):  # J2
        return data
    flag, begun = journal[9:10], journal[:10].ljust(10, b"\0")
    check("J3", begun[:9].startswith(b"blpkjrnl\1"[: len(journal)]) and begun[9] < 2)
    count = int.from_bytes(journal[32:40], "little") if len(journal) >= 88 else 1
    at = 96 + 16 * count
    if not 1 <= count <= 3 or len(journal) < at + 32:
        check("J3", flag != b"\1")
        return data
    length, number, _, start, size = struct.unpack_from("<qQqqq", journal, 16)
    ends = [*struct.unpack_from(f"<{2 * count}q", journal, 88)]
    (head_size,) = struct.unpack_from("<q", journal, at - 8)
    extents = [*zip(ends[::2], ends[1::2])]
    expected = at + head_size + sum(b - a for a, b in extents) + 32
    digest = hashlib.sha256(journal[:9] + b"\0" + journal[10:-32]).digest()
    is_whole = len(journal) == expected and digest == journal[-32:]
    if not is_whole and flag != b"\1":  # J2
        return data
    check("J3", journal[10:16] == bytes(6) and 0 <= length <= len(data))
    check("J3", all(a < b for a, b in itertools.pairwise(ends)))
    check("J3", ends[0] == 0 and ends[-1] <= length and head_size == ends[1])
    check("J3", size >= 64 and 0 <= start <= length - size)
    check("J3", all(b <= start or a >= start + size for a, b in extents))
    head, at = journal[at : at + head_size], at + head_size
    check("J3", is_whole)
    old = bytearray(data[:length])
    for a, b in extents:
        old[a:b], at = journal[at : at + b - a], at + b - a
    check("J3", are_overwritten(bytes(old), extents))
    starts = [*range(start, start + size, max(4096, -(-size // 16)))]
    starts.append(max(start, start + size - 4096))
    samples = [data[i : min(i + 4096, start + size)] for i in starts]
    witness = hashlib.blake2b(b"".join(samples), digest_size=32).digest()
    check("J3", witness == journal[56:88])
    check("J3", all(n in (a, b, 0) for n, a, b in zip(data, old, head)))
    check("J3", inode == number or data[:head_size] != head)
    return bytes(old)


def are_overwritten(old: bytes, extents: list[tuple[int, int]]) -> bool:
    """Return whether a change overwrites these: head, free entries, last chunk on."""
    try:
        content, chunks_at = read_front(old)
    except Refused as error:
        raise Refused("J3") from error
    header, rest = content.header, extents[1:]
    has_table = header.options & 1 and header.nchunks != -1
    free = 8 * header.max_app_chunks if has_table else 0
    table = chunks_at - free - (8 * header.nchunks if has_table else 0)
    if rest and rest[-1][0] >= chunks_at and rest.pop()[1] != len(old):
        return False
    inside = all(chunks_at - free <= a and b <= chunks_at for a, b in rest)
    return inside and extents[0][1] in (32, table)


def is_name(name: object) -> bool:
    """Return whether a text is the relative name of a file in a dataset (I9)."""
    is_text = isinstance(name, str) and not re.search(r"[\\\0]", name)
    return is_text and not {"", ".", ".."} & {*name.split("/")}


class Folder:
    """A folder of a dataset, whose files are read through its journal."""

    def __init__(self, path: str, outer: Folder | None = None) -> None:
        """Take a folder; a column of a table has the journal of the table, too."""
        self.path, start = path, os.path.basename(path) + "/"
        self.files: dict[str, str | bytes] = {
            name[len(start) :]: found
            for name, found in (outer.files if outer else {}).items()
            if name.startswith(start)
        }  # new content, or where it is, by the names of files
        if os.path.lexists(os.path.join(path, ".bloscpack", "journal")):
            self.read_journal(os.path.join(path, ".bloscpack"))

    def read_journal(self, hidden: str) -> None:
        around, journal = os.lstat(hidden), os.lstat(hidden + "/journal")
        check("J6", stat.S_ISDIR(around.st_mode) and stat.S_ISREG(journal.st_mode))
        check("J6", journal.st_nlink == 1 and journal.st_size <= LIMIT)
        folder = os.stat(self.path)
        sticky = folder.st_mode & stat.S_ISVTX
        for status in (around, journal):
            known = [0, folder.st_uid] + [os.getuid()] * (status is around)
            allowed = not sticky and may_write(status.st_uid, folder)
            check("J6", status.st_uid in known or allowed)
            others = status.st_mode & (stat.S_IWOTH | stat.S_IWGRP)
            allowed = folder.st_mode & (others if folder.st_gid == status.st_gid else 2)
            check("J6", not others or (not sticky and allowed & others == others))
        with open(hidden + "/journal", "rb") as file:
            value = parse_json(file.read(), "J5")
        check("J5", isinstance(value, dict))
        files, removed = value.get("files"), value.get("removed", [])
        documents = value.get("documents", {})
        check("J5", isinstance(files, dict) and isinstance(documents, dict))
        check("J5", isinstance(removed, list))
        check("J5", all(map(is_name, [*files, *files.values(), *documents, *removed])))
        check("J5", all(isinstance(text, str) for text in documents.values()))
        for name, target in files.items():
            if is_file(hidden, name):
                self.files[target] = os.path.join(hidden, name)
        for name, text in documents.items():
            self.files[name] = text.encode("utf-8", "surrogatepass")

    def has(self, name: str) -> bool:
        return name in self.files or is_file(self.path, name)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file in the folder; None if there is none."""
        if not self.has(name):
            return None
        found = self.files.get(name, os.path.join(self.path, name))
        if isinstance(found, str):
            with open(found, "rb") as file:
                found = file.read()
        return found

    def document(self, name: str) -> bytes | None:
        """Return a document of at most 64 MiB."""
        raw = self.read(name)
        check("M7", raw is None or len(raw) <= LIMIT)
        return raw


def is_file(folder: str, name: str) -> bool:
    """Return whether a regular file is there; links are refused (I9)."""
    parts = name.split("/")
    for end, part in enumerate(parts, 1):
        folder = os.path.join(folder, part)
        if not os.path.lexists(folder):
            return False
        mode = os.lstat(folder).st_mode
        check("I9", not stat.S_ISLNK(mode))
        if not (stat.S_ISDIR(mode) if end < len(parts) else stat.S_ISREG(mode)):
            return False
    return True
