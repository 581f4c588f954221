"""The check of an archive: every rule that the ZIP file or one of its members breaks.

Strategy: the members are checked as bytes first: local header, checksum. Then the
documents and the arrays: each file with chunks is inspected as a file of its own. The
fields of the ZIP file that change no array are compared with those that `savez` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from .._file.archive import (
    BLP,
    CHECKSUM,
    ArchiveFile,
    check_document,
    encode_directory,
    new_info,
)
from .._format.shard import count_slots
from .._format.zarr_metadata import ZARR_JSON, ArrayDocument
from .._format.zip_format import (
    DESCRIPTOR,
    ENCRYPTED,
    LOCAL_SIGNATURE,
    STORED,
    LocalHeader,
    document_name,
    encode_local,
    find_local,
    local_extent,
    parents_of,
)
from .._storage.base import PartStorage, Storage
from .._storage.zip_store import Directory
from ..abstract_io import Progress
from ..exceptions import DamageError, FormatError, Unsupported
from ..serializers import shard_rows
from .files import Inspection
from .findings import Report
from .lenient_sections import positions_of

if TYPE_CHECKING:
    from zipfile import ZipInfo

SECTION = "archive"
# Signatures of the records of a ZIP file, one of which is behind each member.
RECORDS = (LOCAL_SIGNATURE, b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06")
# Maximum size in bytes of a local header that is searched for. Longer names, which only
# the directory shows, would make the search slow in files full of signatures.
MAX_FOUND = 2**12


def report_on_archive(
    storage: Storage, nthreads: int, progress: Progress | None = None
) -> Report:
    """Check an archive; the caller enters `own_settings` first."""
    try:
        file = ArchiveFile(storage)
    except Unsupported:
        raise
    except FormatError as error:
        report = _new_report(storage)
        report.add(SECTION, "directory", error.message, offset=error.offset)
        return report
    return ArchiveChecker(file, nthreads, progress).check()


class ArchiveChecker:
    """Collects the findings of one archive."""

    def __init__(
        self, file: ArchiveFile, nthreads: int, progress: Progress | None
    ) -> None:
        self.file = file
        self.nthreads = nthreads
        self.progress = progress
        self.report = _new_report(file.storage)

    def check(self) -> Report:
        """Check everything; return the report."""
        self._check_members()
        for name in self.file.members:
            if name.endswith("/" + ZARR_JSON) or name == ZARR_JSON:
                self._check_document(name)
        for group in parents_of(self.file.arrays):
            if document_name(group) not in self.file.members:
                self._add("missing", document_name(group), "the member is missing")
        for name in self.file.arrays:
            self._check_array(name)
        return self.report

    def _add(
        self, kind: str, member: str | None, message: str, note: bool = False, **at: Any
    ) -> None:
        add = self.report.note if note else self.report.add
        add(SECTION, kind, message, member=member, **at)

    # The ZIP file

    def _check_members(self) -> None:
        """Compare local headers and checksums with the directory, and it with the list.

        The fields that readers ignore and `savez` writes otherwise are notes.
        """
        file, end, usual, others = self.file, 0, [], []
        for info in sorted(file.entries, key=lambda info: info.header_offset):
            name, at = info.orig_filename, info.header_offset
            if end < at:
                self._note_gap(end, at)
            if file.members.get(name, info) is not info:
                message = "a later entry of the directory has the same name"
                self._add("replaced", name, message, True, offset=at)
            start, end = self._check_bytes(info) or (at, file.limits[at])
            own = new_info(name, at - file.shift)
            own.file_size = own.compress_size = info.file_size
            own.CRC = info.CRC
            usual.append(own)
            if start > at and file.storage.read_at(at, start - at) != encode_local(own):
                others.append(info)
        if end < file.start:
            self._note_gap(end, file.start)
        for name in file.sizes:
            try:
                file.member(name)
            except FormatError as error:
                kind = "size" if name in file.members else "missing"
                self._add(kind, name, error.message)
                continue
            if file.is_later(name):
                message = "expected '%d' bytes, which the document of the group lists, "
                message += "found '%d' in all records: a later write"
                sizes = file.sizes[name], file.members[name].file_size
                self._add("later", name, message % sizes, True)
        if others:
            message = "the local headers of '%d' members have other fields than savez "
            message = message % len(others) + "writes; this is the first"
            at = others[0].header_offset
            self._add("fields", others[0].orig_filename, message, True, offset=at)
        directory = file.storage.read_at(file.start, file.storage.size - file.start)
        if directory != encode_directory(usual, file.start - file.shift):
            message = "the directory has other fields than savez writes"
            self._add("fields", None, message, True, offset=file.start)

    def _check_bytes(self, info: ZipInfo) -> tuple[int, int] | None:
        """Return the extent of the bytes of a member; None if there is none."""
        name = info.orig_filename
        try:
            ((start, stop, _),) = self.file.extents(info)
        except Unsupported as error:
            if not self._is_part(name):
                self._add("other", name, "not checked: %s" % error, True)
                return None
            error.filename = error.filename or self.file.name
            raise
        except FormatError as error:
            self._add("local-header", name, error.message, offset=info.header_offset)
            return None
        if fault := _fault_of(self.file.storage, start, stop, info.CRC):
            self._add("crc32", name, fault, extent=(start, stop))
        return start, stop

    def _is_part(self, name: str) -> bool:
        """Return whether a member is a document, or has the chunks of an array."""
        file = self.file
        is_document = name == ZARR_JSON or name.endswith("/" + ZARR_JSON)
        return is_document or name in file.sizes or name in file.arrays.values()

    def _note_gap(self, start: int, stop: int) -> None:
        message = "'%d' bytes belong to no member" % (stop - start)
        self._add("gap", None, message, True, extent=(start, stop))

    # The arrays

    def _check_document(self, name: str) -> None:
        """Check a ``zarr.json``, unless `_check_array` checks it with its array."""
        if name.removesuffix(ZARR_JSON).rstrip("/") in self.file.arrays:
            return
        try:
            document = self.file.json(name)
        except FormatError as error:
            self._add("document", name, error.message)
            return
        kind = document.get("node_type")
        if document.get("zarr_format") != 3 or kind not in ("group", "array"):
            self._add("document", name, "expected the document of a Zarr group")
        elif kind == "array":
            message = "the array is not checked: savez can't have written it"
            self._add("other", name, message, True)

    def _check_array(self, name: str) -> None:
        file, chunks = self.file, self.file.arrays[name]
        if chunks == document_name(name):
            message = "no member has the chunks of the array"
            self._add("missing", chunks, message)
            return
        try:
            ((start, stop, _),) = file.extents(file.members[chunks])
        except (KeyError, FormatError):  # there is a finding already
            return
        try:
            file.check_has_own_chunks(chunks, PartStorage(file.storage, start, stop))
        except Unsupported as error:
            self._add("unsupported", chunks, "not checked: %s" % error, True)
            return
        inspection = self._check_chunks(chunks, start, stop)
        if chunks.endswith(BLP):
            return
        if document_name(name) not in file.members:
            message = "there is no document of the array"
            self._add("missing", chunks, message)
            return
        try:
            document = file.document(name)
            if inspection is not None:
                _check_shard(document, inspection, chunks)
        except Unsupported as error:
            message = "not checked: %s" % error
            self._add("unsupported", document_name(name), message, True)
        except FormatError as error:
            self._add("document", document_name(name), str(error))

    def _check_chunks(self, member: str, start: int, stop: int) -> Inspection | None:
        """Check a member as a file; return the inspection if no errors were found."""
        storage = PartStorage(self.file.storage, start, stop)
        try:
            inspection = Inspection(storage, self.nthreads, self.progress)
        except FormatError as error:
            self._add("chunks", member, error.message, extent=(start, stop))
            return None
        report = inspection.report
        self.report.include(report, member, start)
        if report.ok and inspection.geometry.array is None:
            message = "the metadata of the member describe no array"
            # The document beside a shard states an array, so its absence is damage.
            is_note = member.endswith(BLP)
            kind = "unsupported" if is_note else "chunks"
            self._add(kind, member, message, is_note, extent=(start, stop))
        return inspection if report.ok and inspection.geometry.array else None


class FoundMember(NamedTuple):
    """A member of a damaged archive: its bytes are [start, stop).

    ``at`` is where its local header begins. ``problem`` says why the bytes are not the
    whole member; it is empty if their checksum is right. ``other`` is the name in the
    local header if the directory has another one, which is ``name``.
    """

    name: str
    at: int
    start: int
    stop: int
    problem: str
    other: str = ""


def find_members(storage: Storage) -> Iterator[FoundMember]:
    """Yield the members of an archive in order, also without a directory.

    The local headers are searched, and the directory shows damaged ones. The bytes of a
    member are those that its header states if their checksum is right, or if a record
    of the ZIP file follows. All others end at the next local header. No bytes are in
    two members, so that a ZIP file in an array adds no members.
    """
    try:
        directory = Directory(storage)
        entries = {info.header_offset: info for info in directory.entries}
        end = directory.start
    except FormatError:
        entries, end = {}, storage.size
    # A budget keeps the search linear on hostile files: in others, each byte is read
    # once for a checksum.
    budget, limit = 2 * storage.size, 0
    cut_off: FoundMember | None = None
    signatures = positions_of(LOCAL_SIGNATURE, storage, 0, storage.size)
    for at in merge(sorted(entries), signatures):
        parts = _member_at(storage, at, entries.get(at)) if limit <= at < end else None
        if parts is None:
            continue
        name, other, header = parts
        if cut_off is not None:
            yield cut_off._replace(stop=at)
            cut_off = None
        expected, size, packed = header.numbers
        start, stop = header.start, header.start + size
        limit, problem = start, "its size is wrong, or the file was cut off in it"
        if header.method != STORED or header.flags & (ENCRYPTED | DESCRIPTOR):
            stop, problem = start + packed, "another program has compressed it"
        elif stop <= end and size <= budget:
            budget -= size
            problem = _fault_of(storage, start, stop, expected)
        follows = storage.read_at(stop, 4) if stop < end else LOCAL_SIGNATURE
        member = FoundMember(name, at, start, stop, problem, other)
        if not problem or (stop <= end and follows in RECORDS):
            limit = stop
            yield member
        else:
            cut_off = member
    if cut_off is not None:
        yield cut_off._replace(stop=max(end, cut_off.start))


def _fault_of(storage: Storage, start: int, stop: int, expected: int) -> str:
    """Return why the bytes of a member are wrong; '' if they have their checksum."""
    crc = 0
    for block in storage.read_blocks(start, stop):
        crc = crc32(block, crc)
    found = "expected the crc32 '%08x', found '%08x'" % (expected, crc)
    return found * (crc != expected)


def _member_at(
    storage: Storage, at: int, info: ZipInfo | None
) -> tuple[str, str, LocalHeader] | None:
    """Return name, other name and local header of a member; `info` is its entry."""
    local = find_local(storage.read_at(at, MAX_FOUND), at)
    other, header = ("", None) if local is None else local
    if header is not None and (info is None or other == info.orig_filename):
        return other, "", header
    if info is None:
        return None
    size, (_, start) = info.file_size, local_extent(info)
    numbers = info.CRC, size, info.compress_size
    name, flags, method = info.orig_filename, info.flag_bits, info.compress_type
    return name, other, LocalHeader(flags, method, numbers, start, True)


def _check_shard(document: ArrayDocument, inspection: Inspection, member: str) -> None:
    """Raise `FormatError` unless a shard is the one that a document describes."""
    described, sections = inspection.geometry.array, inspection.sections
    assert described is not None
    assert sections.header is not None
    assert sections.metadata is not None
    check_document(document, described.shape, described.dtype, member)
    header, rows = sections.header, shard_rows(sections.metadata.value)
    inner = tuple(max(1, n) for n in described.shape[1:])
    chunk = (rows, *inner) if described.grid is None else described.grid.chunk
    grid = document.grid
    expected = grid.chunk, grid.slots, CHECKSUM
    found = chunk, count_slots(header, sections.metadata.value), header.checksum
    if expected != found:
        raise DamageError(
            "expected a shard with chunks of shape '%s', '%s' entries in its index and "
            "the checksum '%s', found '%s', '%s' and '%s'" % (*expected, *found)
        )


def _new_report(storage: Storage) -> Report:
    return Report(cbytes=storage.size, checksum="crc32")
