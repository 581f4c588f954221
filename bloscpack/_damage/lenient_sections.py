"""The sections in front of the chunks, read with forbearance.

Like `frames`, but a check that fails becomes a finding, and reading goes on with what
is left: a table is found by the chunks that it names.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

from .._format import metadata as metadata_section
from .._format import offsets as offset_table
from .._format.offsets import FREE
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import (
    BLOSCPACK_HEADER_LENGTH,
    MAGIC,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ..exceptions import FormatError, FormatVersionMismatch, NotReadable
from ..headers import (
    HEADER_LENGTHS,
    HEADER_V2_V3,
    OPTION_OFFSETS,
    BloscpackHeader,
    MetadataHeader,
    decode_header,
)
from ..serializers import SERIALIZERS_LOOKUP
from .findings import Findings
from .scan import MARK

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._storage.base import Storage

# What is looked through at a time.
PIECE = 2**20
# A table is looked for in so many bytes in front of a chunk.
TABLE_LOOKED_FOR = 2**26
# So many beginnings of one are tried.
TABLES_TRIED = 64
# No chunk and its digest take as much.
LARGEST = 2**31 + 2**10


class Sections:
    """What lies in front of the chunks of a file.

    ``header`` is None if it is lost, and ``unreadable`` what says then that this may be
    no Bloscpack file at all; ``metadata_header`` is None if there are no metadata or
    they are lost, and ``metadata_lost`` says which; ``metadata_stored`` is their text
    as it is stored. ``table`` are the entries in use, at ``table_at``; ``free`` is the
    number of free ones. ``base`` is where chunks may begin and ``first`` where the
    first one should be, if that is known. ``unchecked`` says that a header which is
    lost speaks of no digests.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.findings = Findings()
        self.header: BloscpackHeader | None = None
        self.metadata: Any = None
        self.metadata_header: MetadataHeader | None = None
        self.metadata_lost = False
        self.metadata_stored = b""
        self.table: Sequence[int] = ()
        self.table_at = 0
        self.free: int | None = None
        self.base = 0
        self.first: int | None = None
        self.unchecked = False
        self.unreadable = self._read_header()
        self._read_sections()

    @property
    def has_table(self) -> bool:
        """Whether the offset table lies where it says itself that it ends."""
        return bool(self.table) and self.table[0] == self.first

    @property
    def stated_last(self) -> int | None:
        """The plain size of the last chunk, None if no header says or can say it.

        In layout 2 it may say that it is larger than the others, but none was so.
        """
        header = self.header
        if header is None or header.last_chunk == -1:
            return None
        lies = -1 < header.chunk_size < header.last_chunk and header.nchunks != 1
        return None if lies else header.last_chunk

    # The header

    def _read_header(self) -> NotReadable | None:
        """Read the header; return what would be raised if there are no chunks."""
        prefix = self.storage.read_at(0, BLOSCPACK_HEADER_LENGTH)
        try:
            self.header = _decode_header(prefix)
        except FormatError as error:
            kind = "header"
            unreadable = error if isinstance(error, NotReadable) else None
            if isinstance(error, FormatVersionMismatch):
                kind = "layout"
            elif not prefix.startswith(MAGIC):
                kind = "magic"
            elif unreadable is not None:
                kind, unreadable = "truncated", None
            self.findings.add("header", kind, error.message, offset=error.offset or 0)
            # Damaged as it is, it may still say that there are no digests.
            self.unchecked = prefix.startswith(MAGIC) and prefix[4:7:2] == b"\3\0"
            return unreadable
        self.base = HEADER_LENGTHS[self.header.format_version]
        self._check_header(self.header, prefix)
        return None

    def _check_header(self, header: BloscpackHeader, prefix: bytes) -> None:
        findings = self.findings
        layout = header.format_version
        if layout == 2:
            options, reserved = prefix[5], HEADER_V2_V3.unpack(prefix)[-1]
            if options & ~OPTION_OFFSETS or reserved:
                findings.note("header", "reserved", "reserved bytes are not zero")
        if layout < 3:
            return
        if not header.offsets and header.max_app_chunks:
            findings.add(
                "header",
                "header",
                "expected no free entries where there is no offset table, found '%d'"
                % header.max_app_chunks,
                offset=24,
            )
        if header.nchunks == 1 and header.chunk_size != header.last_chunk:
            findings.note(
                "header",
                "size",
                "expected the size '%d' of the only chunk as chunk size, found '%d'"
                % (header.last_chunk, header.chunk_size),
                offset=8,
            )

    # Metadata and offset table

    def _read_sections(self) -> None:
        header = self.header
        if header is None:
            return
        end: int | None = self.base
        if header.metadata:
            end = self.read_metadata(self.base)
            self.metadata_lost = self.metadata_header is None
        if end is None:
            return
        self.first = end
        if header.offsets and header.nchunks != -1:
            self._read_table(end, header)

    def read_metadata(self, start: int) -> int | None:
        """Read the metadata section; return where it ends, None if nobody can tell."""
        findings, storage = self.findings, self.storage
        where = {"offset": start, "extent": (start, start + METADATA_HEADER_LENGTH)}
        try:
            header = MetadataHeader.decode(
                storage.read_at(start, METADATA_HEADER_LENGTH)
            )
            metadata_section.check_header(header)
        except FormatError as error:
            message = error.message
            if storage.read_at(start, 1) in (b"{", b"["):
                message += "; some states of the development tree wrote bare text here"
            findings.add("metadata", "metadata-header", message, **where)
            return None
        end = start + metadata_section.section_size(header)
        where["extent"] = start, end
        if end > storage.size:
            findings.add(
                "metadata",
                "truncated",
                "the file ends too early: expected metadata of '%d' bytes, found '%d'"
                % (end - start, storage.size - start),
                **where,
            )
            return None
        text_at = start + METADATA_HEADER_LENGTH
        stored = storage.read_at(text_at, header.meta_comp_size)
        room_at, room_end = text_at + len(stored), text_at + header.max_meta_size
        checksum = CHECKSUMS_LOOKUP[header.meta_checksum]
        digest, expected = storage.read_at(room_end, checksum.size), checksum(stored)
        if digest != expected:
            findings.add(
                "metadata",
                "digest",
                "expected the digest %r (%s), found %r"
                % (expected, checksum.name, digest),
                **where,
            )
        else:
            self.base = end
        try:
            self.metadata = metadata_section.decode(header, stored, expected)
            self.metadata_header, self.metadata_stored = header, stored
        except FormatError as error:
            findings.add("metadata", "metadata", error.message, **where)
        if not self.is_filled(room_at, room_end, b"\0"):
            findings.note(
                "metadata",
                "room",
                "the room behind the text is not zero",
                offset=room_at,
                extent=(room_at, room_end),
            )
        return end

    def is_filled(self, start: int, stop: int, byte: bytes) -> bool:
        """Return whether there is nothing but `byte` from `start` to `stop`."""
        for position in range(start, stop, PIECE):
            data = self.storage.read_at(position, min(PIECE, stop - position))
            if data.count(byte) != len(data):
                return False
        return True

    def _read_table(self, start: int, header: BloscpackHeader) -> None:
        used = OFFSET_LENGTH * header.nchunks
        free = OFFSET_LENGTH * header.max_app_chunks
        self.first = start + used + free
        if self.first > self.storage.size:
            self.findings.add(
                "offsets",
                "truncated",
                "the file ends too early: expected an offset table of '%d' bytes, "
                "found '%d'" % (used + free, self.storage.size - start),
                offset=start,
                extent=(start, self.storage.size),
            )
            self.first = None
            return
        self.table_at, self.free = start, header.max_app_chunks
        self.table = array("q", offset_table.decode(self.storage.read_at(start, used)))

    # Sections that are not where they should be

    def is_right_for(self, starts: list[int]) -> bool:
        """Return whether the table names one of these places and lies where it should.

        Then the first chunk is damaged, and no section in front of it.
        """
        named = [start for start in starts if start in self.table]
        if not named or self.first is None or min(named) < self.first:
            return False
        return self.has_table or self.has_free_entries

    @property
    def has_free_entries(self) -> bool:
        """Whether there are free entries, from the last one in use up to the chunks."""
        used_until = self.table_at + OFFSET_LENGTH * len(self.table)
        return bool(self.free and self.first) and self.is_filled(
            used_until, self.first or 0, b"\xff"
        )

    def find_table(self, offset: int) -> bool:
        """Find the offset table by an entry; return whether there is another one.

        It ends where its first entry says that the first chunk begins, and all entries
        behind those in use are free.
        """
        start = max(BLOSCPACK_HEADER_LENGTH, offset - TABLE_LOOKED_FOR)
        region = self.storage.read_at(start, offset - start)
        at = region.find(struct.pack("<q", offset))
        first = offset
        # The entry may be that of a later chunk: those in front of it, and where they
        # say that the first chunk begins.
        begins: list[tuple[int, int]] = []
        while at >= 0 and start + at < first:
            begins.append((at, first))
            at -= OFFSET_LENGTH
            before = struct.unpack_from("<q", region, at)[0] if at >= 0 else 0
            if not before < first:
                break
            first = before
        stated = [begin for begin in begins if begin[1] == self.first]
        if any(_table_in(region, at, first - start) for at, first in stated):
            return False  # it is where the header says
        for at, first in begins[: -TABLES_TRIED - 1 : -1]:
            entries = _table_in(region, at, first - start)
            if entries:
                break
        else:
            return False
        self.table_at, self.first = start + at, first
        self.free = (self.first - self.table_at) // OFFSET_LENGTH - len(entries)
        # The first free entry may be damaged too.
        while len(entries) > 1 and not 0 < entries[-1] - entries[-2] < LARGEST:
            entries, self.free = entries[:-1], self.free + 1
        self.table = array("q", entries)
        return True

    def find_metadata(self, start: int) -> None:
        """Take metadata that no header speaks of, if there are any."""
        if self.storage.read_at(start, 4) not in SERIALIZERS_LOOKUP:
            return
        known = self.findings
        self.findings = Findings()
        self.read_metadata(start)
        found, self.findings = self.findings, known
        if found.nerrors:
            self.metadata, self.metadata_header = None, None
        elif self.header is not None:
            known.add(
                "header",
                "options",
                "there are metadata, but the header does not announce them",
                offset=5,
            )


def _decode_header(prefix: bytes) -> BloscpackHeader:
    """Return the header; layout 0 is one only if a chunk follows it."""
    header = decode_header(prefix)
    if header.format_version == 0 and not prefix.startswith(MARK, HEADER_LENGTHS[0]):
        raise FormatVersionMismatch(
            "expected a layout from 1 to 3, found '0'", section="header", offset=4
        )
    return header


def _table_in(region: bytes, start: int, stop: int) -> tuple[int, ...]:
    """Return the entries in use from `start` to `stop`, none if that is no table."""
    length, rest = divmod(stop - start, OFFSET_LENGTH)
    if rest or length < 1:
        return ()
    (last,) = struct.unpack_from("<q", region, stop - OFFSET_LENGTH)
    if last != FREE and length > 1 and last <= stop:
        return ()
    entries: tuple[int, ...] = struct.unpack_from("<%dq" % length, region, start)
    used = entries.index(FREE) if FREE in entries else length
    # Some may be damaged.
    nfree = entries.count(FREE)
    rising = sum(start < a < b for a, b in pairwise(entries[:used]))
    if 4 * nfree < 3 * (length - used) or 3 * rising < 2 * (used - 1):
        return ()
    return entries[:used]
