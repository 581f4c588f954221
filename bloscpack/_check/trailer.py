"""Find the trailer of a Zarr shard behind the chunks, and compare it with them.

The other steps of an inspection see the file without its trailer: the padded copy in it
looks like a chunk. `without_trailer` cuts it off, `check_trailer` reports on it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from .._engine.blosc_settings import own_settings
from .._format.append_plan import LEFT_OVER_HEAD, begins_left_over
from .._format.block_table import HEAD, BlockRow, is_table, raw_row, table_nbytes
from .._format.blosc_header import decode_header
from .._format.chunks import check_digest, decompress, frames_of, is_intact
from .._format.crc32c import crc32c
from .._format.sections import read_beginning
from .._format.shard import (
    ANY_NBYTES,
    CRC_LENGTH,
    ENTRY,
    MISSING,
    SEPARATOR,
    count_slots,
    encode_entries,
    index_size,
    inner_size,
    may_have_table,
    slots_of,
    trailer_nbytes,
)
from .._storage.base import READ_SIZE, PartStorage, Storage
from .._storage.cursor import StorageCursor
from .._types import Json
from ..checksums import ALL_CHECKSUMS, Hash
from ..constants import BLOSC_HEADER_LENGTH, MAGIC
from ..exceptions import FormatError, StorageError
from ..headers import BloscpackHeader
from ..log import counted
from ..serializers import is_shard, shard_rows
from .findings import ANOTHER
from .lenient_sections import Sections

if TYPE_CHECKING:
    from .files import Inspection

SECTION = "shard"
# Maximum number of separators examined in the search for a trailer. A budget keeps it
# linear on hostile files; ordinary files have one separator.
MAX_CANDIDATES = 64
# Maximum number of bytes whose checksum is computed in this search, as a multiple of
# the size of the file: the index of one candidate may begin at this many positions.
MAX_TIMES_READ = 2 * (1 + len(ALL_CHECKSUMS))
NO_TRAILER = (
    "the metadata say that the file is a Zarr shard, but no shard index follows the "
    "chunks: a program that does not know shards has changed the file, and the next "
    "append or repack writes the index again"
)
CUT_OFF = (
    "the file ends too early: the metadata say that it is a Zarr shard, but it ends in "
    "front of the shard index"
)
OTHER_CHUNKS = (
    "the metadata say that the file is a Zarr shard of inner chunks of %s, but it has "
    "%s: 'blpk repack --shard' makes it a shard again, and 'blpk repack --no-shard' an "
    "ordinary file"
)


# Finding


def without_trailer(storage: Storage, sections: Sections) -> Storage:
    """Return a storage that ends where the trailer of a shard begins, if any."""
    metadata = sections.metadata
    if metadata is not None and is_shard(metadata.value):
        start = _end_of_chunks(storage, sections) or _search(storage)
    elif sections.header is None or sections.metadata_lost:
        start = _search(storage)
    else:
        start = None
    if start is None or start == storage.size:
        return storage
    return PartStorage(storage, 0, start)


def end_before_append(whole: Storage, start: int, sections: Sections) -> int | None:
    """Return the end of the trailer at `start`, if an append has begun behind it.

    The file may have lost its trailer before. If that is there, but its separator is
    damaged, the file has the right size, or an intact index is at its end.
    """
    header, metadata = sections.header, sections.metadata
    if start == whole.size or header is None or metadata is None:
        return None
    with suppress(FormatError):
        behind = PartStorage(whole, start, whole.size)
        nbytes = trailer_nbytes(header, metadata.value, behind.read_at)
        end, size = start + nbytes, index_size(count_slots(header, metadata.value))
        head = whole.read_at(end, LEFT_OVER_HEAD)
        if end >= whole.size or not begins_left_over(head):
            return None
        is_trailer = not nbytes and (
            whole.size - start == len(SEPARATOR) + size
            or _ends_with_index(whole, size, whole.size, start)
        )
        # An append may have written the trailer of the new chunks.
        return None if is_trailer and _search(whole) is None else end
    return None


def _ends_with_index(whole: Storage, size: int, stop: int, least: int) -> bool:
    """Return whether an intact index of `size` bytes ends at `stop`.

    It may begin at `least`.
    """
    start, end = stop - size, stop - CRC_LENGTH
    if start < least:
        return False
    return whole.read_at(end, CRC_LENGTH) == _crc_of_extent(whole, start, end)


def _end_of_chunks(storage: Storage, sections: Sections) -> int | None:
    """Return where the last chunk ends by header and table, None if that is uncertain.

    It is the start of the trailer, also of a damaged one.
    """
    header, entries = sections.header, sections.table.entries
    if header is None:
        return None
    end = _end_by_table(storage, header, entries[-1]) if entries else None
    if end is not None:
        return end
    try:
        cursor = StorageCursor(storage)
        read_beginning(cursor)
        for _ in frames_of(cursor, header):
            pass
        end = cursor.position
    except FormatError:
        return None
    # The table or a chunk is wrong, or there is no table: only a separator makes sure.
    return end if storage.read_at(end, len(SEPARATOR)) == SEPARATOR else None


def _end_by_table(storage: Storage, header: BloscpackHeader, last: int) -> int | None:
    """Return where the chunk at `last` ends, None unless it is the last one."""
    try:
        head = decode_header(storage.read_at(max(last, 0), BLOSC_HEADER_LENGTH))
    except FormatError:
        return None
    size = head.ctbytes + header.checksum_impl.size
    end = last + size
    behind = storage.read_at(end, len(SEPARATOR))
    if behind == SEPARATOR:
        return end
    if behind.startswith(MAGIC):
        return None
    content = storage.read_at(last, size)
    return end if is_intact(content, head, header.checksum_impl) else None


def _search(storage: Storage) -> int | None:
    """Return the start of the last trailer whose index is intact, None if none is."""
    budget = MAX_TIMES_READ * storage.size
    stop = storage.size - CRC_LENGTH
    for start in islice(_separators(storage), MAX_CANDIDATES):
        for at in _index_starts(storage, start + len(SEPARATOR)):
            offset, nbytes = ENTRY.unpack(storage.read_at(at, ENTRY.size))
            if storage.size < offset + nbytes < 2 * MISSING:
                continue  # the first entry is wrong: do not read the others
            budget -= stop - at
            if budget < 0:
                return None
            if _crc_of_extent(storage, at, stop) == storage.read_at(stop, CRC_LENGTH):
                return start
    return None


def _separators(storage: Storage) -> Iterator[int]:
    """Yield the offsets of all separators, the last one first."""
    for stop in range(storage.size, 0, -READ_SIZE):
        start = max(0, stop - READ_SIZE)
        # A separator may lie across two blocks.
        block = storage.read_at(start, stop - start + len(SEPARATOR) - 1)
        at = block.rfind(SEPARATOR)
        while at >= 0:
            yield start + at
            at = block.rfind(SEPARATOR, 0, at)


def _crc_of_extent(storage: Storage, start: int, stop: int) -> bytes:
    """Return the checksum of an extent, which may be too long for the memory."""
    value = 0
    for block in storage.read_blocks(start, stop):
        value = crc32c(block, value)
    return value.to_bytes(CRC_LENGTH, "little")


def _index_starts(storage: Storage, start: int) -> Iterator[int]:
    """Yield where the index of a trailer may begin."""
    for copied, nbytes in _sizes_in_front(storage, start, ALL_CHECKSUMS):
        position = start + copied + nbytes
        left = storage.size - CRC_LENGTH - position
        if left > 0 and left % ENTRY.size == 0:
            yield position


def _sizes_in_front(
    storage: Storage, start: int, checksums: Collection[Hash]
) -> Iterator[tuple[int, int]]:
    """Yield possible sizes of padded copy and table of blocks, 0 for none.

    They lie between the separator and the index.
    """
    copies = [0]
    with suppress(FormatError):
        head = decode_header(storage.read_at(start, BLOSC_HEADER_LENGTH))
        copies += sorted({head.ctbytes + checksum.size for checksum in checksums})
    for copied in copies:
        yield copied, 0
        if nbytes := table_nbytes(storage.read_at(start + copied, HEAD.size)):
            yield copied, nbytes


# Checking


def check_trailer(inspection: Inspection) -> None:
    """Compare the trailer with the chunks."""
    sections, report = inspection.sections, inspection.report
    header, metadata = sections.header, sections.metadata
    if header is None or metadata is None or not is_shard(metadata.value):
        return
    rows = shard_rows(metadata.value)
    wanted = "every axis" if rows is None else counted(rows, "row")
    size = inner_size(metadata.value, header)
    start, stop = inspection.storage.size, inspection.whole.size
    if size is None:
        found = "other chunks" if header.offsets else "no offset table"
        report.note(SECTION, "no-trailer", OTHER_CHUNKS % (wanted, found), offset=start)
    elif start == stop and _is_cut_off(inspection):
        report.add(SECTION, "truncated", CUT_OFF, offset=start)
    elif start == stop:
        report.note(SECTION, "no-trailer", NO_TRAILER, offset=start)
    else:
        _TrailerCheck(inspection, size, header, metadata.value).check()


def _is_cut_off(inspection: Inspection) -> bool:
    """Return whether the file ends in front of the end of its last chunk."""
    if inspection.numbering.last_size is not None:
        return False
    last = [*inspection.damaged[-1:]]
    ends = [chunk.stop or chunk.start + BLOSC_HEADER_LENGTH for chunk in last]
    return all(end > inspection.storage.size for end in ends)


class _TrailerCheck:
    """Collects the findings about one trailer."""

    def __init__(
        self,
        inspection: Inspection,
        inner: int,
        header: BloscpackHeader,
        metadata: Json,
    ) -> None:
        self.inspection, self.report = inspection, inspection.report
        self.inner = inner
        self.slots = slots_of(header, metadata)
        self.may_have_table = may_have_table(header, inner)
        self.start = inspection.storage.size
        self.copy_start = self.start + len(SEPARATOR)
        size = index_size(count_slots(header, metadata))
        whole, checksums = inspection.whole, [inspection.checksum]
        self.fronts = [*_sizes_in_front(whole, self.copy_start, checksums)]
        nbytes = 0
        with suppress(FormatError):
            behind = PartStorage(whole, self.start, whole.size)
            nbytes = trailer_nbytes(header, metadata, behind.read_at)
        self.stop = self._stop(size, self.start + nbytes)
        self.index_start = self.stop - size

    def _stop(self, size: int, expected: int) -> int:
        """Return the end of the trailer, also if another packed file follows.

        The index has `size` bytes, and is `expected` to end there.
        """
        whole = self.inspection.whole
        for copied, nbytes in self.fronts:
            position = self.copy_start + copied + nbytes + size
            where = position, whole.size
            behind = "'%d' bytes lie behind the shard index" % (whole.size - position)
            if whole.read_at(position, len(MAGIC)) == MAGIC:
                message = behind + ": another packed file begins there"
                self.report.note("chunks", ANOTHER, message, extent=where)
                return position
            is_index = _ends_with_index(whole, size, position, self.copy_start)
            if position == expected < whole.size and is_index:
                self._add(behind + ", where Zarr looks for it", *where)
                return position
        return whole.size

    def check(self) -> None:
        """Check separator, index, padded copy and table of blocks."""
        whole = self.inspection.whole
        found = whole.read_at(self.start, len(SEPARATOR))
        if found != SEPARATOR:
            message = "expected the trailer of a Zarr shard, found bytes that begin %r"
            self._add(message % found, self.start, self.stop)
        if self.index_start < self.copy_start:
            message = (
                "expected a shard index of '%d' bytes behind the chunks, found '%d'"
            )
            sizes = self.stop - self.index_start, max(0, self.stop - self.copy_start)
            self._add(message % sizes, self.start, self.stop)
            return
        stop = self.stop - CRC_LENGTH
        crc = whole.read_at(stop, CRC_LENGTH)
        expected = _crc_of_extent(whole, self.index_start, stop)
        if crc != expected:
            message = "the checksum of the shard index is '%s', but it should be '%s'"
            message %= crc.hex(), expected.hex()
            self._add(message, self.index_start, self.stop)
        numbering = self.inspection.numbering
        if numbering.nfound == numbering.nchunks:
            # Otherwise the findings about the chunks come first.
            self._check_entries()

    def _add(self, message: str, start: int, stop: int) -> None:
        self.report.add(SECTION, "trailer", message, extent=(start, stop))

    def _check_entries(self) -> None:
        chains = self.inspection.numbering.chains
        expected = array("Q")
        for chain in chains:
            for i in range(len(chain)):
                expected.extend((chain.offsets[i], chain.extent_of(i)))
        last, is_copied = chains[-1].sizes[-1], False
        if self.inner not in (last, ANY_NBYTES):
            offset, nbytes = expected[-2:]
            del expected[-2:]
            is_copied = bool(last)
        start = self.index_start  # of the table, if there is one
        for copied, table in self.fronts if self.may_have_table else ():
            where = self.copy_start + copied
            if table and bool(copied) == is_copied and where + table == start:
                start = where
        if is_copied:
            self._check_copy(offset, nbytes, start)
            expected.extend((self.copy_start, start - self.copy_start))
        elif start == self.index_start > self.copy_start:
            message = "'%d' bytes lie between the chunks and the shard index"
            gap = self.index_start - self.copy_start
            self._add(message % gap, self.copy_start, self.index_start)
        if start < self.index_start:
            self._check_table(expected, start)
        count = self.slots[-1] + 1
        self._compare(encode_entries(expected, count, self.slots))

    def _check_table(self, extents: array[int], start: int) -> None:
        """Compare the table of blocks with the chunks of its rows.

        `extents` are offsets and sizes of the chunks in turn.
        """
        whole = self.inspection.whole
        table = whole.read_at(start, self.index_start - start)
        crc = whole.read_at(self.stop - CRC_LENGTH, CRC_LENGTH)
        nslots = (self.stop - CRC_LENGTH - self.index_start) // ENTRY.size
        if not is_table(table, nslots, crc):
            message = "the table of blocks does not fit its digest and the index"
            self._add(message, start, self.index_start)
            return
        pairs = zip(extents[::2], extents[1::2], strict=True)
        where = dict(zip(self.slots, pairs, strict=False))
        for slot in range(HEAD.unpack_from(table)[1]):
            raw = raw_row(table, slot)
            if not any(raw):
                continue
            offset, size = where.get(slot, (0, 0))
            chunk = whole.read_at(offset, max(0, size - CRC_LENGTH))
            row = BlockRow.of_chunk(chunk) if chunk else None
            if row is None or row.raw != raw:
                message = "the table of blocks has a wrong row for inner chunk %d"
                at = start + HEAD.size + slot * len(raw)
                self._add(message % slot, at, at + len(raw))
                break

    def _compare(self, expected: bytes) -> None:
        """Compare the index with the entries of the chunks; the others are missing."""
        whole = self.inspection.whole
        stop = self.stop - CRC_LENGTH
        for start in range(self.index_start, stop, READ_SIZE):
            size = min(READ_SIZE, stop - start)
            index = whole.read_at(start, size)
            if len(index) < size:  # it had them when it was opened
                raise StorageError("the file changed while it was read")
            at = start - self.index_start
            right = expected[at : at + len(index)].ljust(len(index), b"\xff")
            if index == right:  # usually, and there may be millions of entries
                continue
            pairs = zip(ENTRY.iter_unpack(index), ENTRY.iter_unpack(right), strict=True)
            wrong = [(i, *pair) for i, pair in enumerate(pairs) if pair[0] != pair[1]]
            number, extents = at // ENTRY.size + wrong[0][0], wrong[0][1:]
            message = "the shard index says that inner chunk %d has %s, but it has %s"
            message %= number, *(_shown_extent(*extent) for extent in extents)
            if len(wrong) > 1:
                message += "; '%d' more entries are wrong" % (len(wrong) - 1)
            at = self.index_start + ENTRY.size * number
            self._add(message, at, at + ENTRY.size)
            return

    def _check_copy(self, offset: int, nbytes: int, stop: int) -> None:
        """Compare the padded copy, up to `stop`, with the last chunk, at `offset`."""
        whole, checksum = self.inspection.whole, self.inspection.checksum
        start = self.copy_start
        # Blosc adds at most a header to the plain bytes.
        most = self.inner + BLOSC_HEADER_LENGTH + checksum.size
        if stop - start > most:
            message = "expected a padded copy of at most '%d' bytes, found '%d'"
            self._add(message % (most, stop - start), start, stop)
            return
        raw = whole.read_at(start, stop - start)
        split = max(0, len(raw) - checksum.size)
        frame = whole.read_at(offset, nbytes - checksum.size)
        message = "the padded copy of the last chunk "
        try:
            check_digest(raw[:split], raw[split:], checksum)
            found = decode_header(raw).nbytes
            with own_settings:
                if found != self.inner:
                    message += "has '%d' plain bytes, not '%d'" % (found, self.inner)
                elif decompress(frame).ljust(found, b"\0") == decompress(raw[:split]):
                    return
                else:
                    message += "has other plain bytes than it"
        except FormatError as error:
            message += "is damaged: %s" % error.message
        self._add(message, start, stop)


def _shown_extent(offset: int, nbytes: int) -> str:
    if offset == nbytes == MISSING:
        return "no bytes"
    return "'%d' bytes from byte %d on" % (nbytes, offset)
