"""Recover: a sound file from all that is intact in a damaged one.

`Inspection` finds the chunks; `plan_recovery` decides, without reading or writing, what
the new file will be; then the chunks are copied as they are, each with its digest
compared again. The damaged file is only ever read.
"""

from __future__ import annotations

import os

from ._crashsafe.replace import check_distinct, replacing
from ._crashsafe.snapshot import attempts_for, read_snapshot
from ._damage.inspection import Inspection
from ._damage.rebuild import Loss, Recovery, plan_recovery
from ._engine.blosc_settings import own_settings
from ._engine.threads import for_each
from ._format.chunks import check_digest, compress
from ._storage.local import storage_of
from ._storage.spool import seekable_with_size
from .abstract_io import effective_nthreads
from .args import BloscArgs
from .defaults import DEFAULT_TYPESIZE
from .exceptions import ChecksumMismatch, FormatError, StorageError
from .file_io import CompressedFPSink
from .headers import check_range

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._damage.rebuild import Plan
    from ._storage.base import Path
    from .abstract_io import Progress

__all__ = ["Loss", "Recovery", "recover", "recover_fp"]


def recover_fp(
    damaged_fp: Any,
    out_fp: Any,
    *,
    fill: int = 0,
    drop: bool = False,
    nthreads: int | None = None,
    progress: Progress | None = None,
) -> Recovery:
    """Write to `out_fp` a sound file of all that is intact in `damaged_fp`.

    Both are used from where they stand. Chunks are copied compressed, as they are. In
    place of a lost chunk stands one of bytes `fill`, 0 to 255, so that all others keep
    their places; with `drop` lost chunks are left out. `progress` is called as in
    `bloscpack.verify.verify_fp`.

    Raises `NotReadable` for what is no Bloscpack file, and `FormatError` if no chunk is
    left; then nothing has been written.
    """
    check_range("fill", fill, 0, 255)
    count = effective_nthreads(nthreads, None)
    with seekable_with_size(damaged_fp) as (copy, _), own_settings:
        inspection = Inspection(storage_of(copy), count, progress)
        plan = plan_recovery(inspection, drop)
        _write(plan, inspection, out_fp, fill, count)
    return plan.recovery


class _Sink(CompressedFPSink):
    """Takes the metadata as the section that they are."""

    def write_section(self, section: bytes) -> None:
        self.meta_total = len(section)
        self._write(section)


def _write(
    plan: Plan, inspection: Inspection, out_fp: Any, fill: int, nthreads: int
) -> None:
    header, checksum = plan.header, inspection.checksum
    blosc_args = BloscArgs(typesize=header.typesize or DEFAULT_TYPESIZE)
    sink = _Sink(out_fp)
    sink.configure(blosc_args, header)
    sink.write_bloscpack_header()
    if plan.section:
        sink.write_section(plan.section)
    sink.init_offsets()
    fillers: dict[int, bytes] = {}

    def chunks() -> Iterator[tuple[int, int] | int]:
        for part in plan.parts:
            for i in range(part.start, part.stop):
                if part.chain is not None:
                    yield part.chain.offsets[i], part.chain.stop_of(i)
                else:
                    yield plan.geometry.expected(i) or 0

    def work(task: tuple[int, int] | int) -> tuple[bytes, bytes]:
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

    for_each(chunks(), work, deliver, nthreads)
    sink.finalize()


def _filler(fill: int, nbytes: int, blosc_args: BloscArgs) -> bytes:
    """Return what stands in the place of a lost chunk, compressed."""
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
    """Write `out_file` from all that is intact in the file `damaged`.

    See `recover_fp`. `out_file` appears when it is complete; `damaged` stays as it is.
    With `sync` the new file is on the disk when this returns; None means that it is if
    it replaces another. Raises `UsageError` if both are the same file.
    """
    check_distinct(damaged, out_file)

    def read(fp: Any, check: Any) -> Recovery:
        check(None)  # from here on it counts as an attempt
        with replacing(out_file, sync) as out_fp:
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
