"""Write an intact file from a damaged one: ``bloscpack.recover(damaged, out_file)``.

`Inspection` finds the chunks, and a `RecoveryPlan` says what the new file contains.
Then the chunks are copied without recompressing them, and each digest is checked again.
The damaged file is never written to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, partial

from ._check.files import Inspection
from ._check.rebuild import Loss, Recovery, RecoveryPlan
from ._commit.ownership import attributes_of_input
from ._commit.replacing import check_distinct, replacing
from ._commit.snapshot import attempts_for, read_snapshot
from ._compat import make_callable
from ._engine.blosc_settings import own_settings
from ._engine.threads import ordered
from ._format.chunks import check_digest, compress
from ._format.shard import new_trailer
from ._storage.base import Storage
from ._storage.paths import shown_name
from ._storage.stream import positional
from ._types import BinaryFile, Path, Readable, StorageOptions, Writable
from .abstract_io import Progress, effective_nthreads
from .args import BloscArgs, MetadataArgs
from .constants import MAGIC
from .dataset.file_checks import DatasetRecovery
from .defaults import DEFAULT_TYPESIZE
from .exceptions import ChecksumMismatch, DamageError, StorageError, UsageValueError
from .file_io import CompressedFPSink
from .headers import BloscpackHeader, check_range
from .verify import checker_of_folder

# The extent of a chunk to copy, or the plain size of a chunk to fill in.
Task = tuple[int, int] | int

__all__ = ["Loss", "Recovery", "recover", "recover_fp"]


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
    UsageError
        They are an archive, whose members are recovered after extracting them.
    FormatError
        No chunk is intact. Nothing has been written.
    """
    check_range("fill", fill, 0, 255)
    count = effective_nthreads(nthreads, None)
    with positional(damaged_fp) as storage, own_settings:
        if storage.read_at(0, len(MAGIC)) != MAGIC:
            from ._file.archive import refuse_archive

            refuse_archive(storage)
        inspection = Inspection(storage, count, progress)
        plan = RecoveryPlan(inspection, drop, fill)
        _write(plan, inspection, out_fp, fill, count)
    return plan.recovery


def _write(
    plan: RecoveryPlan,
    inspection: Inspection,
    out_fp: Writable,
    fill: int,
    nthreads: int,
) -> None:
    """Write the new file."""
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

    ordered(_tasks(plan), work, lambda chunk: sink.store(0, *chunk), nthreads)
    sink.finalize()


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
        raise DamageError(
            "there is no memory for '%d' plain bytes in place of a lost chunk; without "
            "filling, none is needed" % nbytes,
            section="chunks",
        ) from error


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
            found = recover_fp(
                fp, out_fp, fill=value, drop=drop, nthreads=nthreads, progress=progress
            )
            check(None)
            return found

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
