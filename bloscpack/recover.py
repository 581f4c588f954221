"""Write an intact file from a damaged one: ``bloscpack.recover(damaged, out_file)``.

`inspect` finds the chunks and `plan_recovery` plans the new file. Then the chunks are
copied without recompressing them, and each digest is checked again. The damaged file is
never written to.
"""

from __future__ import annotations

import os

from ._compat import make_callable
from ._crashsafe.ownership import attributes_of_input
from ._crashsafe.replace import check_distinct, replacing
from ._crashsafe.snapshot import attempts_for, read_snapshot
from ._damage.inspection import inspect
from ._damage.rebuild import Loss, Recovery, plan_recovery
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format.chunks import check_digest, compress
from ._storage.spool import positional
from .abstract_io import effective_nthreads
from .args import BloscArgs
from .defaults import DEFAULT_TYPESIZE
from .exceptions import ChecksumMismatch, FormatError, StorageError
from .file_io import CompressedFPSink
from .headers import check_range

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._damage.inspection import Inspection
    from ._damage.rebuild import Plan
    from ._storage.base import Storage
    from ._storage.protocols import BinaryFile, Path, Readable, Writable
    from .abstract_io import Progress
    from .headers import BloscpackHeader

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
    without recompressing them.

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

    Returns
    -------
    Recovery
        The saved and the lost chunks.

    Raises
    ------
    NotReadable
        The bytes are no Bloscpack file. Nothing has been written.
    FormatError
        No chunk is intact. Nothing has been written.
    """
    check_range("fill", fill, 0, 255)
    count = effective_nthreads(nthreads, None)
    with positional(damaged_fp) as storage, own_settings:
        inspection = inspect(storage, count, progress)
        plan = plan_recovery(inspection, drop)
        _write(plan, inspection, out_fp, fill, count)
    return plan.recovery


class _Sink(CompressedFPSink):
    """A sink that writes an encoded metadata section."""

    def write_section(self, section: bytes) -> None:
        """Write a metadata section."""
        self.meta_total = len(section)
        self._write(section)


def _write(
    plan: Plan, inspection: Inspection, out_fp: Writable, fill: int, nthreads: int
) -> None:
    """Write the new file."""
    header, checksum = plan.header, inspection.checksum
    blosc_args = BloscArgs(typesize=header.typesize or DEFAULT_TYPESIZE)
    sink = _Sink(out_fp)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if plan.section:
        sink.write_section(plan.section)
    sink.init_offsets()
    fillers: dict[int, bytes] = {}

    def tasks() -> Iterator[Task]:
        for part in plan.parts:
            for i in range(part.stop - part.first):
                if part.chain is not None:
                    yield part.chain.offsets[i], part.chain.stop_of(i)
                else:
                    yield plan.geometry.size_of(part.first + i) or 0

    def work(task: Task) -> tuple[bytes, bytes]:
        if isinstance(task, tuple):
            start, stop = task
            raw = inspection.storage.read_at(start, stop - start)
            split = len(raw) - checksum.size
            compressed, digest = raw[:split], raw[split:]
            try:
                check_digest(compressed, digest, checksum)
            except ChecksumMismatch as error:
                raise StorageError("the file changed while it was read") from error
            return compressed, digest
        if task not in fillers:
            fillers[task] = _filler(fill, task, blosc_args)
        return fillers[task], checksum(fillers[task])

    def deliver(chunk: tuple[bytes, bytes]) -> None:
        sink.put_digested(0, *chunk)

    for_each(tasks(), work, deliver, nthreads)
    sink.finalize()


def _filler(fill: int, nbytes: int, blosc_args: BloscArgs) -> bytes:
    """Return a compressed chunk of `nbytes` bytes `fill`."""
    try:
        return compress(bytes([fill]) * nbytes, blosc_args)
    except MemoryError as error:
        raise FormatError(
            "there is no memory for '%d' plain bytes in place of a lost chunk; without "
            "filling, none is needed" % nbytes,
            section="chunks",
        ) from error


def recover(
    damaged: Path,
    out_file: Path,
    *,
    fill: int = 0,
    drop: bool = False,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
) -> Recovery:
    """Write the intact file `out_file` from all intact chunks of the file `damaged`.

    `out_file` appears under its name only when it is complete. The settings `fill`,
    `drop`, `nthreads` and `progress` are those of `recover_fp`.

    Parameters
    ----------
    damaged
        The damaged file.
    out_file
        The file to write.
    sync
        Flush the new file to the disk before returning; None does so only if it
        replaces a file.

    Returns
    -------
    Recovery
        The saved and the lost chunks.

    Raises
    ------
    UsageError
        `damaged` and `out_file` are the same file.
    NotReadable
        The file is no Bloscpack file.
    FormatError
        No chunk is intact.
    """
    check_distinct(damaged, out_file)

    def read(
        fp: BinaryFile, check: Callable[[BloscpackHeader | None], None]
    ) -> Recovery:
        check(None)  # a later change of the file makes another attempt necessary
        like = attributes_of_input(fp)
        with replacing(out_file, sync, like, access=True) as out_fp:
            found = recover_fp(
                fp,
                out_fp,
                fill=fill,
                drop=drop,
                nthreads=nthreads,
                progress=progress,
            )
            check(None)
            return found

    recovery = read_snapshot(damaged, read, attempts_for(out_file))
    recovery.report.filename = os.fsdecode(damaged)
    return recovery


make_callable(__name__)
