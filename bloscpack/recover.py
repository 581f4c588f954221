"""Write an intact file from a damaged one: ``bloscpack.recover(damaged, out_file)``.

`Inspection` finds the chunks, and a `RecoveryPlan` says what the new file contains.
Then the chunks are copied without recompressing them, and each digest is checked again.
The damaged file is never written to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from tempfile import TemporaryFile
from typing import Any

from ._check.archives import SECTION, FoundMember, find_members
from ._check.files import Inspection
from ._check.findings import Report
from ._check.rebuild import ArchiveRecovery, Loss, Recovery, RecoveryPlan, fill_limit
from ._commit.ownership import attributes_of_input
from ._commit.replacing import check_distinct, replacing
from ._commit.snapshot import attempts_for, read_snapshot
from ._compat import make_callable
from ._engine.blosc_settings import own_settings
from ._engine.threads import ordered
from ._file.archive import (
    BLP,
    CHECKSUM,
    ArchiveWriter,
    archive_writer,
    array_of,
    is_archive,
)
from ._format.array_metadata import Description
from ._format.blosc_header import chunk_damage
from ._format.chunks import check_digest, compress
from ._format.grid import Grid
from ._format.names import is_safe_name
from ._format.shard import count_slots, new_trailer
from ._format.zarr_metadata import ZARR_JSON, ArrayDocument, decode_array
from ._format.zip_format import (
    MAX_DIRECTORY,
    MEMBERS,
    decode_sizes,
    document_name,
    parents_of,
)
from ._storage.base import MemoryStorage, PartStorage, Storage
from ._storage.local import whole_file
from ._storage.paths import shown_name
from ._storage.stream import positional
from ._storage.zip_store import Directory
from ._types import BinaryFile, JsonObject, Path, Readable, StorageOptions, Writable
from .abstract_io import Progress, effective_nthreads
from .args import BloscArgs, MetadataArgs
from .constants import MAGIC, MAX_DOCUMENT
from .dataset.file_checks import DatasetRecovery
from .defaults import DEFAULT_TYPESIZE
from .exceptions import (
    ChecksumMismatch,
    DamageError,
    FormatError,
    StorageError,
    UsageValueError,
)
from .file_io import CompressedFPSink
from .headers import BloscpackHeader, check_range
from .serializers import is_array, is_shard, parse_json, shard_rows
from .verify import checker_of_folder

# The extent of a chunk to copy, or the plain size of a chunk to fill in.
Task = tuple[int, int] | int

# The listed size of chunks that are no file of this package. Each file has more bytes,
# so readers take them for a later write of another program.
LATER = 0
# Maximum number of members that are saved: a directory has no more.
MAX_MEMBERS = MAX_DIRECTORY // 50

__all__ = ["ArchiveRecovery", "Loss", "Recovery", "recover", "recover_fp"]


def recover_fp(
    damaged_fp: Readable | Storage,
    out_fp: Writable,
    *,
    fill: int = 0,
    drop: bool = False,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> Recovery:
    """Write an intact file from all intact chunks of a damaged one.

    Both file objects are used from their current positions on. Chunks are copied
    without recompressing them. If anything is lost, the metadata get a note of it.
    From an archive a new archive is made, and the result is an `ArchiveRecovery`.

    Parameters
    ----------
    damaged_fp
        A file object open for reading, or a `Storage` such as `Reader` takes. A file
        object that can't seek is copied to a temporary file first.
    out_fp
        A file object open for writing.
    fill
        The value of the bytes that replace lost chunks, 0 to 255. All other chunks keep
        their positions.
    drop
        Leave lost chunks out instead.
    nthreads, progress
        As in `bloscpack.verify.verify_fp`.

    Raises
    ------
    NotReadable
        The bytes are not a Bloscpack file. Nothing has been written.
    FormatError
        No chunk is intact. Nothing has been written.
    """
    check_range("fill", fill, 0, 255)
    count = effective_nthreads(nthreads, None)
    with positional(damaged_fp) as storage, own_settings:
        if storage.read_at(0, len(MAGIC)) != MAGIC and is_archive(storage):
            with archive_writer(out_fp) as writer, TemporaryFile() as spool:
                how = fill, drop, count, progress
                return _ArchiveSaver(storage, writer, spool, how).save()
        return _write_intact(storage, out_fp, fill, drop, count, progress).recovery


def _write_intact(
    storage: Storage,
    out_fp: Writable,
    fill: int,
    drop: bool,
    count: int,
    progress: Progress | None,
    most: int | None = None,
) -> RecoveryPlan:
    """Write an intact file; `most` is that of `RecoveryPlan`."""
    inspection = Inspection(storage, count, progress)
    plan = RecoveryPlan(inspection, drop, fill, most)
    header, checksum = plan.header, inspection.checksum
    blosc_args = BloscArgs(typesize=header.typesize or DEFAULT_TYPESIZE)
    sink = CompressedFPSink(out_fp)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if plan.section is not None:
        sink.write_metadata(plan.section, MetadataArgs())
        sink.trailer = new_trailer(plan.metadata, header)
    sink.init_offsets()
    filler_of = cache(partial(_filler, fill, blosc_args))

    def work(task: Task) -> tuple[bytes, bytes]:
        if isinstance(task, int):
            filler = filler_of(task)
            return filler, checksum(filler)
        start, stop = task
        raw = inspection.storage.read_at(start, stop - start)
        split = len(raw) - checksum.size
        compressed, digest = raw[:split], raw[split:]
        try:
            check_digest(compressed, digest, checksum)
        except ChecksumMismatch as error:
            raise StorageError("the file changed while it was read") from error
        return compressed, digest

    ordered(_tasks(plan), work, lambda chunk: sink.store(0, *chunk), count)
    sink.finalize()
    return plan


def _tasks(plan: RecoveryPlan) -> Iterator[Task]:
    """Yield the chunks of the new file in order."""
    for first, stop, chain in plan.parts:
        if chain is not None:
            yield from ((chain.offsets[i], chain.stop_of(i)) for i in range(len(chain)))
        else:
            yield from (plan.geometry.size_of(i) or 0 for i in range(first, stop))


def _filler(fill: int, blosc_args: BloscArgs, nbytes: int) -> bytes:
    """Return a compressed chunk of `nbytes` bytes `fill`."""
    try:
        return compress(bytes([fill]) * nbytes, blosc_args)
    except MemoryError as error:
        raise chunk_damage(
            "there is no memory for '%d' plain bytes in place of a lost chunk; without "
            "filling, none is needed" % nbytes
        ) from error


# Archives


@dataclass(eq=False)
class _ArchiveSaver:
    """Writes a new archive from the members of a damaged one.

    The chunks of each array are recovered as a file of its own, in the file `spool`.
    `how` are the arguments of `_write_intact` behind the output.
    """

    storage: Storage
    writer: ArchiveWriter
    spool: Any
    how: tuple[int, bool, int, Progress | None]

    def __post_init__(self) -> None:
        self._most = fill_limit(self.storage.size)
        report = Report(cbytes=self.storage.size, checksum="crc32")
        self.recovery = ArchiveRecovery(report, [], [], True, True, 0)
        self._members: dict[str, FoundMember] = {}

    def save(self) -> ArchiveRecovery:
        """Write the new archive; return the result."""
        recovery, members = self.recovery, self._members
        self._find()
        # The arrays of other programs, whose chunks `_copy` keeps.
        self._with_chunks = {
            name.rpartition("/c/")[0]
            for name, member in members.items()
            if "/c/" in name and array_of(name) is None and not member.problem
        }
        attributes, listed = self._read_group(members.pop(ZARR_JSON, None))
        # The members with chunks of the arrays that can be in one archive.
        names: dict[str, str] = {}
        for name in members:
            array = array_of(name)
            if array is not None:
                names.setdefault(array, name)
        groups_of = parents_of(names)
        arrays = {each: names[each] for each in names if each not in groups_of}
        documents = {document_name(name) for name in arrays}
        for name, member in members.items():
            array = array_of(name)
            if array is not None and arrays.get(array) == name:
                self._save_array(array, member)
            elif name not in documents:
                self._copy(member)
        lost = {*recovery.lost_members}
        groups = {group: document_name(group) for group in parents_of(arrays)}
        self.writer.add_groups(
            group
            for group, name in groups.items()
            if name not in members or name in lost
        )
        recovery.lost_members += [name for name in listed if name not in members]
        if arrays and not recovery.narrays:
            raise chunk_damage("no chunk could be saved")
        self.writer.finish(attributes)
        return recovery

    def _find(self) -> None:
        """Find the members; of several with a name the last one counts."""
        report, end = self.recovery.report, 0
        try:
            Directory(self.storage)
        except FormatError as error:
            report.add(SECTION, "directory", error.message, offset=error.offset)
        members = list(islice(find_members(self.storage), MAX_MEMBERS + 1))
        for member in self._named(members):
            name, at = member.name, member.at
            where = {"member": name, "extent": (member.start, member.stop)}
            if end < at:
                message = "'%d' bytes belong to no member" % (at - end)
                report.note(SECTION, "gap", message, extent=(end, at))
            end = member.stop
            if member.problem:
                report.add(SECTION, "member", member.problem, **where)
            if not is_safe_name(name):
                report.add(SECTION, "name", "no member can have this name", **where)
                self.recovery.lost_members.append(name)
                continue
            if self._members.pop(name, None) is not None:
                message = "a later member has the same name"
                report.note(SECTION, "replaced", message, member=name)
            if len(self._members) == MAX_MEMBERS:
                message = "no more than '%d' members are saved" % MAX_MEMBERS
                report.add(SECTION, "member", message, **where)
                self.recovery.lost_members.append(name)
                break
            self._members[name] = member

    def _named(self, members: list[FoundMember]) -> Iterator[FoundMember]:
        """Yield members with their names, of which the damaged archive may have two.

        The list in the document of the group tells which one is right, or there is
        another member of the wrong name.
        """
        if not any(member.other for member in members):
            yield from members
            return
        agreed = {member.name for member in members if not member.other}
        known: set[str] = set()
        for member in members:
            if ZARR_JSON in (member.name, member.other) and not member.problem:
                with suppress(FormatError):
                    known = {ZARR_JSON, *decode_sizes(self._read(member))}
        arrays = [array for name in known if (array := array_of(name)) is not None]
        known.update(map(document_name, [*arrays, *parents_of(arrays)]))
        for member in members:
            if not member.other:
                yield member
                continue
            names = [n for n in (member.name, member.other) if n not in agreed]
            names = [n for n in names if not known or n in known]
            self.recovery.certain = self.recovery.certain and len(names) == 1
            self.recovery.report.add(
                SECTION,
                "local-header",
                "the directory has the name '%s', and the local header '%s'"
                % (member.name, member.other),
                extent=(member.at, member.start),
            )
            yield member._replace(name=[*names, member.name][0])

    def _read_group(
        self, member: FoundMember | None
    ) -> tuple[JsonObject | None, Iterable[str]]:
        """Return the attributes of the group, and the names that its document lists."""
        recovery = self.recovery
        content = b"" if member is None or member.problem else self._read(member)
        try:
            attributes = parse_json(content)["attributes"]
        except (ValueError, LookupError, TypeError):
            attributes = None
        if not isinstance(attributes, dict):
            recovery.metadata, recovery.certain = "lost", False
            recovery.remarks.append(
                "the document of the group is lost, which has the metadata, if there "
                "were any, and the list of all arrays"
            )
            return None, ()
        if attributes.pop(MEMBERS, None) is None:
            recovery.certain = False
        if attributes:
            recovery.metadata = "kept"
        with suppress(FormatError):  # a name that no member can have
            return attributes, decode_sizes(content)
        return attributes, ()

    def _read(self, member: FoundMember) -> bytes:
        """Return the bytes of a document; none of one that is too long."""
        size = member.stop - member.start
        return self.storage.read_at(member.start, size) if size < MAX_DOCUMENT else b""

    def _copy(self, member: FoundMember) -> None:
        """Copy a member that is no part of a saved array, if its checksum is right."""
        name, has_chunks = member.name, array_of(member.name) is not None
        array = name.removesuffix("/" + ZARR_JSON)
        lacks_chunks = (
            array != name
            and array not in self._with_chunks
            and b'"array"' in self._read(member)
        )
        if member.problem or has_chunks or lacks_chunks:
            self.recovery.lost_members.append(name)
        else:
            self.writer.add_copy(name, self._part(member))

    def _part(self, member: FoundMember) -> PartStorage:
        return PartStorage(self.storage, member.start, member.stop)

    def _save_array(self, array: str, member: FoundMember) -> None:
        """Save an array: its chunks, and its document if it is a shard."""
        recovery, name, part = self.recovery, member.name, self._part(member)
        document = self._members.get(document_name(array))
        is_sound = document is not None and not document.problem
        content = self._read(document) if document is not None and is_sound else b""
        is_own = name.endswith(BLP) or part.read_at(0, len(MAGIC)) == MAGIC
        if content and not is_own and not member.problem:
            # A program that knows only Zarr has written it: see `LATER`.
            self.writer.add_copy(name, part, LATER)
            self.writer.add_copy(document_name(array), MemoryStorage(content))
            recovery.narrays += 1
            return
        self.spool.seek(0)
        self.spool.truncate()
        try:
            plan = _write_intact(part, self.spool, *self.how, self._most)
            if not is_array(plan.metadata):
                raise DamageError("the chunks are those of no array")
            array_found = Description(plan.metadata)
        except FormatError as error:
            where = {"member": name, "extent": (member.start, member.stop)}
            recovery.report.add(SECTION, "chunks", error.message, **where)
            recovery.lost_members.append(name)
            return
        recovery.include(plan.recovery, name, member.start)
        self._most -= plan.recovery.nbytes - plan.recovery.report.nbytes_intact
        recovery.narrays += 1
        saved, has_checksum = whole_file(self.spool), plan.header.checksum == CHECKSUM
        if name.endswith(BLP) or not is_shard(plan.metadata) or not has_checksum:
            self.writer.add_copy(array + BLP, saved, saved.size)
            return
        grid = array_found.shard
        if grid is None:
            rows, slots = shard_rows(plan.metadata) or 1, count_slots(plan.header)
            grid = Grid.of_rows(array_found.shape, rows, slots)
        shard = array + "/c" + "/0" * len(grid.shape)
        self.writer.add_copy(shard, saved, saved.size)
        new = ArrayDocument(array_found.dtype, grid)
        if _describes(content, new):
            self.writer.add_copy(document_name(array), MemoryStorage(content))
        else:
            recovery.certain = False
            recovery.remarks.append(
                "'%s' is written again: what other programs stored in it is lost"
                % document_name(array)
            )
            self.writer.add_document(array, new)


def _describes(content: bytes, new: ArrayDocument) -> bool:
    """Return whether the content of a document describes the same array."""
    try:
        old = decode_array(parse_json(content))
    except (ValueError, FormatError, AttributeError, TypeError):
        return False
    pair = [(d.dtype, d.grid.shape, d.grid.chunk, d.grid.slots) for d in (old, new)]
    return pair[0] == pair[1]


def recover(
    damaged: Path,
    out_file: Path,
    *,
    fill: int | None = None,
    drop: bool = False,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> Recovery | DatasetRecovery:
    """Write the intact file `out_file` from all intact chunks of the file `damaged`.

    `out_file` appears under its name only when it is complete. The other settings and
    the errors are those of `recover_fp`. If `damaged` is the folder of a dataset,
    `bloscpack.dataset.recover` writes a new folder.

    Parameters
    ----------
    fill
        The value of the bytes that replace lost chunks. None stands for 0, and in a
        dataset for the fill value of each array.
    sync
        Flush the new file to the disk before returning; None does so only if it
        replaces a file.
    storage_options
        Settings of fsspec for URLs, such as keys.

    Raises
    ------
    UsageError
        `damaged` and `out_file` are the same file.
    """
    checker = checker_of_folder(damaged)
    if checker is not None:
        from . import dataset

        if checker is not dataset.verify:
            raise UsageValueError(
                "'%s' is a BigFile tree: 'blpk bigfile verify' names what is damaged, "
                "and 'blpk bigfile copy' copies other blocks" % os.fsdecode(damaged)
            )
        return dataset.recover(
            damaged,
            out_file,
            fill=fill,
            drop=drop,
            nthreads=nthreads,
            sync=sync is not False,
            progress=progress,
        )
    check_distinct(damaged, out_file)
    value = 0 if fill is None else fill

    def read(
        fp: BinaryFile, check: Callable[[BloscpackHeader | None], None]
    ) -> Recovery:
        check(None)  # a later change of the file makes another attempt necessary
        like = attributes_of_input(fp)
        with replacing(
            out_file, sync, like, access=True, storage_options=storage_options
        ) as out_fp:
            recovered = recover_fp(
                fp, out_fp, fill=value, drop=drop, nthreads=nthreads, progress=progress
            )
            check(None)
            return recovered

    recovery = read_snapshot(
        damaged,
        read,
        attempts_for(out_file),
        storage_options=storage_options,
        undo=False,  # `recover_fp` does it, also with a damaged undo record
    )
    recovery.report.filename = shown_name(damaged)
    return recovery


make_callable(__name__)
