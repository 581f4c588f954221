"""Read the intact parts of header, metadata and offset table of a damaged file.

`_format.sections` raises at the first error. Here each error becomes a finding, and
reading goes on. `find_metadata` finds metadata that the header does not announce.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from .._commit.undo import without_bit
from .._format.blosc_header import BLOSC_PREFIX
from .._format.other_formats import PREFIX_LENGTH
from .._format.sections import (
    check_metadata_header,
    decode_metadata,
    decode_offsets,
    section_size,
)
from .._storage.base import READ_SIZE, Storage
from .._types import Json
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import (
    BLOSCPACK_HEADER_LENGTH,
    FORMAT_VERSION,
    MAGIC,
    METADATA_HEADER_LENGTH,
    OFFSET_LENGTH,
)
from ..exceptions import FormatError, FormatVersionMismatch, NotReadable, Unsupported
from ..headers import (
    FIELD_OFFSETS,
    HEADER_LENGTHS,
    HEADER_V2_V3,
    OPTION_OFFSETS,
    BloscpackHeader,
    MetadataHeader,
    decode_header,
    has_undo_record,
)
from ..serializers import SERIALIZERS_LOOKUP
from .findings import Report

TOO_SHORT = "the file ends too early: expected %s of '%d' bytes, found '%d'"


class OffsetTable(NamedTuple):
    """An offset table at byte ``start`` of the file.

    ``entries`` are the offsets in use and ``nfree`` is the number of free entries, None
    if the file has no table. ``known`` are the entries that may be right, and FREE in
    place of the others.
    """

    entries: Sequence[int] = ()
    start: int = 0
    nfree: int | None = None
    known: Sequence[int] = ()


class MetadataSection(NamedTuple):
    """A metadata section: its header, the decoded value and the bytes as stored."""

    header: MetadataHeader
    value: Json
    stored: bytes


class Sections(NamedTuple):
    """The sections before the chunks.

    ``header`` is None if it is damaged. ``unreadable`` is then the error to raise if no
    chunks are found either, and ``states_no_digests`` says that the damaged header
    still states that there are no digests. ``metadata`` is None if there is none or it
    is damaged; ``metadata_lost`` says which. Chunks can't begin before ``base``;
    ``first`` is the offset of the first chunk, None if unknown.
    """

    header: BloscpackHeader | None = None
    unreadable: NotReadable | Unsupported | None = None
    states_no_digests: bool = False
    metadata: MetadataSection | None = None
    metadata_lost: bool = False
    table: OffsetTable = OffsetTable()
    base: int = 0
    first: int | None = None

    @property
    def stated_last_chunk(self) -> int | None:
        """The plain size of the last chunk by the header, None if it states none.

        A damaged header may state a last chunk that no writer made: one larger than the
        others, or an empty one.
        """
        header = self.header
        if header is None or header.last_chunk == -1:
            return None
        wrong = -1 < header.chunk_size < header.last_chunk and header.nchunks != 1
        empty = header.last_chunk == 0 and header.nchunks > 1
        return None if wrong or empty else header.last_chunk


def read_sections(storage: Storage, report: Report) -> Sections:
    """Read the sections where the header puts them; add the errors to `report`."""
    prefix = storage.read_at(0, BLOSCPACK_HEADER_LENGTH)
    if has_undo_record(prefix):  # not a valid one: `Inspection` has reported that
        prefix = without_bit(prefix)
    if not prefix.startswith(MAGIC):  # the error names the format of the file
        prefix = storage.read_at(0, PREFIX_LENGTH)
    try:
        header = _decode_header(prefix, storage.size)
    except FormatError as error:
        return _report_header(error, prefix, report)
    _check_header(header, prefix, report)
    base = HEADER_LENGTHS[header.format_version]
    sections = Sections(header, base=base, first=base)
    if header.metadata:
        sections = _read_metadata(storage, base, sections, report)
    start = sections.first
    if start is None or not header.offsets or header.nchunks == -1:
        return sections
    used = OFFSET_LENGTH * header.nchunks
    end = start + used + OFFSET_LENGTH * header.max_app_chunks
    if end > storage.size:
        message = TOO_SHORT % ("an offset table", end - start, storage.size - start)
        extent = start, storage.size
        report.add("offsets", "truncated", message, extent=extent)
        return sections._replace(table=OffsetTable((), start), first=None)
    entries = array("q", decode_offsets(storage.read_at(start, used)))
    table = OffsetTable(entries, start, header.max_app_chunks, entries)
    return sections._replace(table=table, first=end)


def _decode_header(prefix: bytes, size: int | None = None) -> BloscpackHeader:
    """Return the header; one of version 0 must be followed by a chunk."""
    header = decode_header(prefix, size)
    chunk_follows = prefix.startswith(BLOSC_PREFIX, HEADER_LENGTHS[0])
    if header.format_version == 0 and not chunk_follows:
        message = "expected a version from 1 to 3, found '0'"
        raise FormatVersionMismatch(message, section="header", offset=len(MAGIC))
    return header


def _report_header(error: FormatError, prefix: bytes, report: Report) -> Sections:
    """Report a header that can't be decoded; return sections without any."""
    unreadable = error if isinstance(error, (NotReadable, Unsupported)) else None
    kind = "header"
    if isinstance(error, FormatVersionMismatch):
        kind = "version"
    elif not prefix.startswith(MAGIC):
        kind = "magic"
    elif unreadable is not None:
        kind, unreadable = "truncated", None
    report.add("header", kind, error.message, offset=error.offset or 0)
    no_digests = prefix.startswith(MAGIC) and prefix[4:7:2] == b"\3\0"
    base = len(prefix) if kind == "truncated" else 0  # all bytes are of the header
    return Sections(unreadable=unreadable, states_no_digests=no_digests, base=base)


def _check_header(header: BloscpackHeader, prefix: bytes, report: Report) -> None:
    fields = FIELD_OFFSETS[header.format_version]
    if header.format_version == 2:
        options, reserved = prefix[5], HEADER_V2_V3.unpack(prefix)[-1]
        if options & ~OPTION_OFFSETS or reserved:
            report.note("header", "reserved", "reserved bytes are not zero")
    if header.format_version < 3:
        return
    if not header.offsets and header.max_app_chunks:
        message = "expected no free entries where there is no offset table, found '%d'"
        message %= header.max_app_chunks
        report.add("header", "header", message, offset=fields["max_app_chunks"])
    sizes = {header.chunk_size, header.last_chunk} - {-1}
    if header.nchunks == 1 and len(sizes) == 2:
        message = "expected the size '%d' of the only chunk as chunk size, found '%d'"
        message %= header.last_chunk, header.chunk_size
        report.note("header", "size", message, offset=fields["chunk_size"])


def _read_metadata(
    storage: Storage, start: int, sections: Sections, report: Report
) -> Sections:
    """Return the sections with the metadata section at `start`.

    Its digest confirms where it ends, so that no chunk can begin before.
    """
    lost = sections._replace(metadata_lost=True, first=None)
    text_at = start + METADATA_HEADER_LENGTH
    if text_at > storage.size:
        sizes = METADATA_HEADER_LENGTH, storage.size - start
        message = TOO_SHORT % ("a metadata header", *sizes)
        report.add("metadata", "truncated", message, extent=(start, storage.size))
        return lost
    try:
        header = MetadataHeader.decode(storage.read_at(start, METADATA_HEADER_LENGTH))
        check_metadata_header(header)
    except FormatError as error:
        message = error.message
        if storage.read_at(start, 1) in (b"{", b"["):
            message += "; some states of the development tree wrote bare text here"
        report.add("metadata", "metadata-header", message, extent=(start, text_at))
        return lost
    end = start + section_size(header)
    extent = start, end
    if end > storage.size:
        message = TOO_SHORT % ("metadata", end - start, storage.size - start)
        report.add("metadata", "truncated", message, extent=extent)
        return lost
    stored = storage.read_at(text_at, header.meta_comp_size)
    room = text_at + len(stored), text_at + header.max_meta_size
    checksum = CHECKSUMS_LOOKUP[header.meta_checksum]
    digest, expected = storage.read_at(room[1], checksum.size), checksum(stored)
    if digest != expected:
        message = "expected the digest %s (%s), found %s"
        message %= expected.hex(), checksum.name, digest.hex()
        report.add("metadata", "digest", message, extent=extent)
    section = None
    try:
        value = decode_metadata(header, stored, expected)
        section = MetadataSection(header, value, stored)
    except FormatError as error:
        report.add("metadata", "metadata", error.message, extent=extent)
    if not is_filled(storage, *room, b"\0"):
        message = "the free bytes behind the text are not zero"
        report.note("metadata", "room", message, extent=room)
    return sections._replace(
        metadata=section,
        metadata_lost=section is None,
        base=end if digest == expected else sections.base,
        first=end,
    )


def is_filled(storage: Storage, start: int, stop: int, byte: bytes) -> bool:
    """Return whether all bytes of an extent equal `byte`."""
    blocks = storage.read_blocks(start, stop)
    return all(block.count(byte) == len(block) for block in blocks)


def find_metadata(storage: Storage, sections: Sections, report: Report) -> Sections:
    """Return the sections with metadata that the header does not announce, if any."""
    header, start = sections.header, BLOSCPACK_HEADER_LENGTH
    known = sections.metadata is not None or (header and header.metadata)
    if known or storage.read_at(start, 4) not in SERIALIZERS_LOOKUP:
        return sections
    ignored = Report()
    with_metadata = _read_metadata(storage, start, sections, ignored)
    if ignored.nerrors:
        return sections
    if header is not None:
        message = "there are metadata, but the header does not announce them"
        offset = FIELD_OFFSETS[FORMAT_VERSION]["options"]
        report.add("header", "options", message, offset=offset)
    return with_metadata._replace(first=sections.first)


def find_header(storage: Storage, start: int, stop: int) -> int | None:
    """Return the offset of the first valid file header in an extent, if any."""
    for position in positions_of(MAGIC, storage, start, stop):
        with suppress(FormatError):
            _decode_header(storage.read_at(position, BLOSCPACK_HEADER_LENGTH))
            return position
    return None


def positions_of(mark: bytes, storage: Storage, start: int, stop: int) -> Iterator[int]:
    """Yield where a mark begins in an extent."""
    for position in range(start, stop, READ_SIZE):
        # A mark may lie across two blocks.
        size = min(READ_SIZE, stop - position) + len(mark) - 1
        data = storage.read_at(position, size)
        at = data.find(mark)
        while at >= 0:
            yield position + at
            at = data.find(mark, at + 1)
