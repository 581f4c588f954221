"""Verify: every check that the format allows, each failure as a finding.

`Inspection` reads the file and finds its chunks, `checks` compares them with what it
says. Damage never raises: only what is no Bloscpack file, or can't be read, does.
"""

from __future__ import annotations

import os

from ._crashsafe.snapshot import read_snapshot
from ._damage.checks import report_on
from ._damage.findings import Finding, Report
from ._damage.inspection import Inspection
from ._engine.blosc_settings import own_settings
from ._storage.local import storage_of
from ._storage.spool import seekable_with_size
from .abstract_io import effective_nthreads

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from ._storage.base import Path
    from .abstract_io import Progress

__all__ = ["Finding", "Report", "verify", "verify_fp"]


def verify_fp(
    fp: Any, *, nthreads: int | None = None, progress: Progress | None = None
) -> Report:
    """Check a file of any layout in a file object, from where it stands.

    All is read once: sections, offset table, every chunk with its digest, and what
    lies in between; each chunk is also decompressed. Where a chunk is damaged, checking
    goes on at the next one that is not. The file object is left at its end. What can't
    seek, like a pipe, is copied to a temporary file first.

    `progress` is called, as in `bloscpack.abstract_io.pack`, for each intact chunk that
    is found. A damaged file may be searched more than once.

    Raises `NotReadable` for what is no Bloscpack file or has a layout nobody knows.
    """
    count = effective_nthreads(nthreads, None)
    with seekable_with_size(fp) as (copy, _), own_settings:
        inspection = Inspection(storage_of(copy), count, progress)
        report = report_on(inspection)
        copy.seek(0, os.SEEK_END)
    return report


def verify(
    path: Path, *, nthreads: int | None = None, progress: Progress | None = None
) -> Report:
    """Check the file `path`; see `verify_fp`.

    If something is being appended to it, or an append was broken off, what was there
    before is checked.
    """

    def read(fp: Any, check: Any) -> Report:
        return verify_fp(fp, nthreads=nthreads, progress=progress)

    report = read_snapshot(path, read)
    report.filename = os.fsdecode(path)
    return report
