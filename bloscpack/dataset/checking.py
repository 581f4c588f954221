"""Check a dataset: ``dataset.verify(path)``.

Descriptions are read as a reader reads them, and each file that the dataset should have
is checked (`file_checks`). Other files and folders become notes. Damage never raises.
Only a folder that is no dataset, or a dataset of an unknown kind, raises an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace

from .._check.findings import NOTE
from .._engine.blosc_settings import own_settings
from .._engine.threads import for_each
from .._format.rows import union
from .._loop import effective_nthreads
from .._storage.protocols import Path, StorageOptions
from .._storage.urls import is_url, path_of
from ..abstract_io import Progress
from ..exceptions import FormatError, UsageError
from .create import LEFTOVER
from .file_checks import (
    MISSING,
    SHORT,
    DatasetReport,
    FileCheck,
    RowLoss,
    check_file,
    gaps_in,
    missing_files,
    move_claimed,
)
from .folder import CHANGES, JOURNAL, Folder
from .layouts import (
    LAYOUTS,
    array_class,
    detect,
    find_member,
    group_class,
    member_names,
    parent_table,
    table_class,
)
from .layouts.array_files import ChunkFiles
from .layouts.base import ArrayLayout, NodeLayout, TableLayout
from .layouts.zarr_array import ZarrArray

# Maximum number of times that an array or a table is checked while writers change it.
ATTEMPTS = 10
# Maximum number of notes about files that the dataset does not use.
STRAYS_KEPT = 100


class Watcher:
    """Takes what a check finds besides its report.

    Attributes
    ----------
    nodes
        The dataset and its members by name, or why one can't be opened.
    files
        The name of the array and the check of each file.
    errors
        The errors of descriptions that can't be read.
    unreached
        The rows in files that an altered description does not reach.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeLayout | Exception] = {}
        self.files: list[tuple[str, FileCheck]] = []
        self.errors: list[FormatError | OSError] = []
        self.unreached: list[RowLoss] = []

    def take_file(self, name: str, check: FileCheck) -> None:
        """Take the check of a file of an array."""
        self.files.append((name, check))

    def include(self, part: Watcher) -> None:
        """Take what the check of a member has found."""
        self.nodes |= part.nodes
        self.errors += part.errors
        self.unreached += part.unreached
        for name, check in part.files:
            self.take_file(name, check)


def verify(
    path: Path,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    storage_options: StorageOptions | None = None,
) -> DatasetReport:
    """Check everything in a dataset: descriptions, files and chunks.

    Every chunk is decompressed, and its digest is checked, if the layout has digests:
    bcolz and BLZ have none. Damage does not raise. Nothing is unpickled, and no
    symbolic link is followed.

    Parameters
    ----------
    path
        The folder of an array, a table or a group, which is checked with all members;
        or its URL, where files that the dataset does not use are not looked for.
    nthreads
        The number of threads, None for the default.
    progress
        Called with the plain bytes of the intact chunks of each file.
    storage_options
        Settings for fsspec to open a URL, such as keys.

    Raises
    ------
    FormatError
        If the folder holds no dataset.
    UsageError
        If this library can't read a dataset of this structure.
    OSError
        If there is no such folder.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> dataset.create_array('v', [1, 2]).close()
    >>> dataset.verify('v')
    <DatasetReport: 0 errors, 0 notes>
    """
    return check_dataset(path, nthreads, progress, None, storage_options)


def check_dataset(
    path: Path,
    nthreads: int | None = None,
    progress: Progress | None = None,
    watcher: Watcher | None = None,
    storage_options: StorageOptions | None = None,
) -> DatasetReport:
    """Check a dataset; `watcher` gets what is not in the report, too."""
    folder = Folder.open(path, storage_options)
    found = detect(folder)
    layout, kind = found.layout, found.kind
    report = DatasetReport(folder.root, layout, kind=kind)
    count = effective_nthreads(nthreads, None)
    with own_settings:
        checker = _Checker(report, count, progress, watcher)
        checker.check(folder, "", layout, kind)
    return report


class _Checker:
    """Adds what is found in a dataset to its report."""

    def __init__(
        self,
        report: DatasetReport,
        nthreads: int,
        progress: Progress | None,
        watcher: Watcher | None,
    ) -> None:
        self._report = report
        self._nthreads = nthreads
        self._progress = progress
        self._watcher = watcher

    def check(self, folder: Folder, member: str, layout: str, kind: str) -> None:
        """Check the dataset, or the member of a group, in a folder.

        An array or a table that a writer has changed meanwhile, and that seems to be
        damaged, is checked again: the check may have seen parts of two states.
        """
        if kind == "group" or folder.is_remote:
            self._check(folder, member, layout, kind)
            return
        files = (array_class if kind == "array" else table_class)(layout)
        progress = self._progress
        for attempt in range(1, ATTEMPTS + 1):
            state = _state_of(folder, files.description_files)
            watcher = None if self._watcher is None else Watcher()
            report = DatasetReport(self._report.path, layout, kind=kind)
            trial = _Checker(report, self._nthreads, progress, watcher)
            trial._check(folder, member, layout, kind)
            same = _state_of(folder, files.description_files) == state
            if report.ok or same or attempt == ATTEMPTS:
                break
            progress = None  # it has counted all files
        self._report.include(report)
        self._report.losses += report.losses
        if self._watcher is not None and watcher is not None:
            self._watcher.include(watcher)

    def _check(self, folder: Folder, member: str, layout: str, kind: str) -> None:
        node = self._open(folder, member, layout, kind)
        if self._watcher is not None:
            self._watcher.nodes[member] = node
        if isinstance(node, Exception):
            return
        used = {folder.full(name) for name in node.description_files}
        self._check_description(node)
        if kind == "array":
            if node.is_column and parent_table(folder) is None:
                message = "it is a column of a table, and there is no document of one"
                self._report.note("metadata", "no-table", message, file=member or ".")
            used |= self._check_array(node, member)  # type: ignore[arg-type]
        elif kind == "table":
            used |= self._check_table(node, member)  # type: ignore[arg-type]
        else:
            for name in member_names(folder):
                try:
                    found = find_member(folder, name)
                except OSError as error:
                    used.add(name)
                    self._description_failed(error)
                    continue
                if found is None:
                    continue
                used.add(name)
                inner = joined_name(member, name)
                if layout != "folder" and found.layout == "folder":
                    message = "a folder of datasets, and no group: it has no document"
                    self._report.note("metadata", "no-document", message, file=inner)
                self.check(found.folder, inner, found.layout, found.kind)
        if not LAYOUTS[layout].has_digests:
            message = "there are no digests: damage is found only where Blosc fails"
            self._report.note("chunks", "no-checksum", message, file=member or ".")
        if layout != "folder" and not folder.is_remote:
            self._note_strays(folder, member, used)

    def _open(
        self, folder: Folder, member: str, layout: str, kind: str
    ) -> NodeLayout | Exception:
        """Return the dataset or member, or the error of opening it, which is noted."""
        try:
            self._check_changes(folder, member)
            return open_for_check(folder, layout, kind)
        except (FormatError, OSError) as error:
            self._description_failed(error)
            return error
        except UsageError as error:
            if not member:
                raise
            message = "not checked: %s" % error
            self._report.note("metadata", "unsupported", message, file=member)
            return error

    def _name(self, path: str) -> str:
        """Return the name of a file in the dataset."""
        if is_url(path):
            inner = path_of(path).removeprefix(path_of(self._report.path))
            return inner.strip("/") or "."
        name = os.path.relpath(path, self._report.path)
        return name.replace(os.sep, "/")

    def _description_failed(self, error: FormatError | OSError) -> None:
        if self._watcher is not None:
            self._watcher.errors.append(error)
        path = error.filename if isinstance(error.filename, str) else self._report.path
        message = _message(error)
        section = getattr(error, "section", None) or "files"
        if isinstance(error, PermissionError):
            name = self._name(path.removesuffix("/" + CHANGES))
            self._report.add(section, "permission", message, file=name)
            return
        self._report.add(section, "description", message, file=self._name(path))

    def _check_description(self, node: NodeLayout) -> None:
        """Check the attributes, and whether another program wrote the description."""
        if node.changed_elsewhere:
            name = self._name(node.folder.path(node.description_files[0]))
            message = (
                "another program has written or changed it, or it is damaged: it has "
                "no right digest"
            )
            self._report.note("metadata", "changed", message, file=name)
        try:
            node.read_attributes()
        except (FormatError, OSError) as error:
            self._description_failed(error)

    def _check_changes(self, folder: Folder, member: str) -> None:
        """Note what an interrupted writer has left."""
        place = member or "."
        folder.read_journal()
        if folder.unfinished:
            message = "a change was committed, and the next writer completes it"
            self._report.note("files", "change", message, file=place)
        elif folder.lists and folder.is_folder(CHANGES) and folder.names(CHANGES):
            message = (
                "files of a change that was not committed, or is being made: the next "
                "writer removes them"
            )
            self._report.note("files", "change", message, file=place)

    # Arrays

    def _check_array(
        self, layout: ArrayLayout, member: str, column: str = ""
    ) -> set[str]:
        """Check the chunks; return the names of the files that were expected.

        `column` is its name if it is a column of the table `member`.
        """
        report = self._report
        used: set[str] = set()
        report.narrays += 1
        size = layout.dtype.itemsize
        for length in layout.shape:
            size *= length
        report.nbytes = (report.nbytes or 0) + size
        for fields, source in layout.parts():
            checks = self._check_part(layout, source)
            used |= {check.file for check in checks}
            name = joined_name(member, column, *fields)
            own = self._own_shards(layout)
            used |= self._check_reach(layout, own, member, name)
            _allow_missing_rows(checks, layout, certain=not own)
            report.losses += [RowLoss(name, rows) for rows in lost_rows(checks)]
            for check in checks:
                self._take(check, member)
                if self._watcher is not None:
                    self._watcher.take_file(name, check)
        return used

    def _own_shards(self, layout: ArrayLayout) -> dict[str, tuple[int, int]]:
        """Return the rows of each shard of an array whose document was altered.

        Shards that state another array, another place or none are left out.
        """
        altered = layout.changed_elsewhere and not layout.folder.is_remote
        if not altered or not isinstance(layout, ZarrArray):
            return {}
        stated = layout.stated_shards()
        return {layout.folder.full(name): rows for name, rows in stated}

    def _check_reach(
        self,
        layout: ArrayLayout,
        own: dict[str, tuple[int, int]],
        member: str,
        name: str,
    ) -> set[str]:
        """Note the rows behind the end of an array; return the names of the shards."""
        unreached = set()
        for file, (start, stop) in own.items():
            if stop <= layout.shape[0]:
                continue
            unreached.add(file)
            rows = max(start, layout.shape[0]), stop
            message = "the document was altered, and does not reach these rows"
            place = joined_name(member, file)
            self._report.note("files", "unreached", message, file=place, rows=rows)
            if self._watcher is not None:
                self._watcher.unreached.append(RowLoss(name, rows))
        return unreached

    def _check_part(self, layout: ArrayLayout, source: ChunkFiles) -> list[FileCheck]:
        """Check the files of a part of an array: they, or their chunks, in parallel.

        A file that was never written counts for nothing. Adjacent files that are
        missing are one finding.
        """
        stored = source.stored()
        if layout.may_lack_files:
            exists, names = source.folder.exists, source.names
            stored = [number for number in stored if exists(names(number))]
        outer = self._nthreads if len(stored) >= self._nthreads else 1
        inner = 1 if outer > 1 else self._nthreads
        checks: list[FileCheck] = []

        def work(number: int) -> FileCheck:
            return check_file(layout, source, number, inner)

        def deliver(check: FileCheck) -> None:
            checks.append(check)
            if self._progress is not None:
                self._progress(sum(nbytes for nbytes, _ in check.intact.values()))

        for_each(stored, work, deliver, outer)
        if not layout.may_lack_files or layout.changed_elsewhere:
            missing = gaps_in(stored, range(source.nfiles))
            checks += [missing_files(layout, source, files) for files in missing]
        move_claimed(checks, layout, source, self._nthreads)
        return sorted(checks, key=lambda check: check.numbers.start)

    def _take(self, check: FileCheck, member: str) -> None:
        report = self._report
        report.nfiles += check.nfiles
        report.nchunks += len(check.numbers)
        # Other programs leave out chunks, which are not damaged.
        report.nintact += len(check.numbers if check.ok else check.intact)
        report.nbytes_intact += sum(nbytes for nbytes, _ in check.intact.values())
        report.cbytes += check.cbytes
        for finding in check.findings:
            name = joined_name(member, finding.file or "")
            report.take(replace(finding, file=name))

    def _check_table(self, table: TableLayout, member: str) -> set[str]:
        """Check the columns; return the names of the files that were expected."""
        report = self._report
        for name, error in (table.unopened or {}).items():
            report.losses.append(RowLoss(joined_name(member, name), None))
            if isinstance(error, UsageError):
                place = joined_name(member, name)
                report.add("metadata", "unsupported", str(error), file=place)
            else:
                assert isinstance(error, (FormatError, OSError))
                self._description_failed(error)
        used = set(table.unopened or ())
        lengths = {name: c.shape[0] for name, c in table.columns.items()}
        if len(set(lengths.values())) > 1:
            texts = ", ".join("'%s': %d" % item for item in lengths.items())
            report.add(
                "metadata",
                "unequal",
                "expected columns of the same length, found %s; the next writer "
                "removes the rows that not all columns have" % texts,
                file=member or ".",
            )
        for name, column in table.columns.items():
            used |= {column.folder.full(file) for file in column.description_files}
            self._check_description(column)
            used |= self._check_array(column, member, name)
        return used

    # Other files

    def _note_strays(self, folder: Folder, member: str, used: set[str]) -> None:
        """Note the files and folders that the dataset does not use."""
        found = 0
        for name, reason in _strays(folder, "", used):
            found += 1
            if found > STRAYS_KEPT:
                self._report.nnotes += 1
                continue
            self._report.note("files", "unused", reason, file=joined_name(member, name))


def open_for_check(folder: Folder, layout: str, kind: str) -> NodeLayout:
    """Return the array, table or group in a folder; some columns may be missing."""
    if kind == "array":
        return array_class(layout)(folder)
    if kind == "table":
        return table_class(layout).open_damaged(folder)
    return group_class(layout)(folder)


def _state_of(folder: Folder, files: tuple[str, ...]) -> object:
    """Return a value that changes when a writer commits a change of an array or table.

    `files` are the names of the descriptions: of the dataset, and of its columns.
    """
    places = ["", *(name + "/" for name in folder.folders())]
    names = [JOURNAL, *(place + file for place in places for file in files)]
    return [(name, folder.identity(name)) for name in names]


def joined_name(*parts: str) -> str:
    """Return names with slashes between them."""
    return "/".join(part for part in parts if part)


def lost_rows(checks: list[FileCheck]) -> list[tuple[int, int]]:
    """Return the rows of a part of an array whose chunks are not intact, as runs."""
    lost = (run for check in checks if not check.ok for run in check.lost)
    return [checks[0].rows_of(start, stop - 1) for start, stop in union(lost)]


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return error.message if isinstance(error, FormatError) else str(error)


def _allow_missing_rows(
    checks: list[FileCheck], layout: ArrayLayout, *, certain: bool
) -> None:
    """Make missing rows notes if readers take them for rows with the fill value.

    It is not `certain` that they were never written if the document was altered.
    """
    if not layout.may_lack_files:
        return
    for check in checks:
        for i, finding in enumerate(check.findings):
            if finding.kind in (MISSING, SHORT):
                message = finding.message + ": the rows have the fill value"
                check.findings[i] = replace(finding, severity=NOTE, message=message)
                check.certain = check.certain and certain


def _strays(folder: Folder, place: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names that are not in `used`, with the reason; no link is followed."""
    for last, kind in folder.entries(place):
        name = place + "/" + last if place else last
        if name in used or name == CHANGES:
            continue
        if kind == stat.S_IFLNK:
            yield name, "a symbolic link, which is not followed"
        elif kind != stat.S_IFDIR:
            yield name, "a file that the dataset does not use"
        elif LEFTOVER.fullmatch(last):
            yield name, "a folder that an interrupted writer left"
        else:
            yield from _strays(folder, name, used)
