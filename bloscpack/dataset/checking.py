"""Check a dataset: ``dataset.verify(path)``.

Descriptions are read as a reader reads them, and each file that the dataset should have
is checked (`file_checks`). Other files and folders become notes. Damage never raises.
Only a folder that is no dataset, a dataset of an unknown kind, or one that other
programs change during each attempt raises an error.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import replace

from .._check.findings import ERROR, Finding, failure_kind
from .._check.note import told
from .._commit.new_folder import LEFTOVER, MARK
from .._engine.blosc_settings import own_settings
from .._engine.threads import ordered
from .._format.committed import DOCUMENTS, STAGING, missed_by_others
from .._format.grid import boxes_of
from .._format.names import listed
from .._format.other_formats import name_folder
from .._format.rows import union
from .._format.zarr_metadata import MASK, ZARR_JSON, unusual_json
from .._storage.folder_store import LinkFound, StaleDataset
from .._storage.paths import is_url
from .._storage.urls import path_of
from .._types import Path, StorageOptions
from ..abstract_io import Progress, effective_nthreads
from ..constants import MAGIC
from ..exceptions import FormatError, Unsupported, UsageError
from . import layouts
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
from .folder import Folder, changes_too_often, is_member_name
from .labels import is_pyramid, told_unequal, unequal_lengths
from .layouts.array_files import ChunkFiles
from .layouts.base import ArrayLayout, NodeLayout, TableLayout
from .layouts.zarr import ZarrArray

# Maximum number of times that a dataset is checked while writers change it.
ATTEMPTS = 20
# The `errno` of the errors about a dataset that other programs have replaced, or change
# again and again.
CHANGING = errno.ESTALE, errno.EAGAIN
# Maximum number of notes about files that the dataset does not use.
STRAYS_KEPT = 100
# A note about a document.
CHANGED = (
    "its digest does not fit, or it has none, as if another program had written it"
)


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
    StorageError
        If other programs change the dataset during each attempt.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> dataset.create_array('v', [1, 2]).close()
    >>> dataset.verify('v')
    <DatasetReport: 0 errors, 0 notes>
    """
    check = DatasetCheck(path, nthreads, progress, storage_options=storage_options)
    return check.report


class DatasetCheck:
    """The check of a dataset: its report, and what is not in the report.

    Attributes
    ----------
    report
        All findings, and the counts.
    nodes
        The dataset and its members by name, or why one can't be opened.
    files
        The name of the array and the check of each file; without `keep_sound` only of
        files that are damaged, or whose chunks are at uncertain positions.
    errors
        The errors of descriptions that can't be read, and of files of chunks that the
        system could not read.
    unreached
        The rows in files that an altered description does not reach.
    """

    def __init__(
        self,
        path: Path,
        nthreads: int | None = None,
        progress: Progress | None = None,
        *,
        keep_sound: bool = False,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.report = DatasetReport()
        self._nthreads = effective_nthreads(nthreads, None)
        self._progress = progress
        self._keep_sound = keep_sound
        self._clear()

        def find() -> layouts.Found:
            folder = Folder.open(path, storage_options)
            folder.tree.ignore_copies()  # each document is checked
            self.report.filename = folder.store.root
            return layouts.detect(folder)

        with own_settings:
            self._check_changing(find, "")

    def _clear(self) -> None:
        self.nodes: dict[str, NodeLayout | Exception] = {}
        self.files: list[tuple[str, FileCheck]] = []
        self.errors: list[Exception] = []
        self.unreached: list[RowLoss] = []

    def raise_failure(self) -> None:
        """Raise the first error because of which something could not be read."""
        for error in self.errors:
            if failure_kind(error) is not None:
                raise error

    def _check_changing(
        self, find: Callable[[], layouts.Found | None], member: str
    ) -> layouts.Found | None:
        """Check the dataset, or the member of a group, that `find` returns; return it.

        If it seems to be damaged, and a writer has changed it meanwhile, it is checked
        again: the check may have seen parts of two states. If it is changed each time,
        the errors that were found each time are reported.
        """
        report, before = self.report, object()
        errors: set[Finding] | None = None
        for attempt in range(ATTEMPTS):
            found = find()
            if found is None:
                return None
            if not member:
                report.layout, report.kind = found.layout, found.kind
            try:
                state = found.layout, found.kind, _state_of(found)
                if state == before:
                    break
                trial = copy(self)
                trial.report = DatasetReport(
                    report.filename, layout=report.layout, kind=report.kind
                )
                trial._clear()
                if attempt:
                    trial._progress = None  # it has counted all files
                trial._check(found, member)
            except StaleDataset:
                before, errors = object(), None
                continue
            if trial.report.ok or found.folder.is_remote:
                break
            seen = {f for f in trial.report.findings if f.severity == ERROR}
            before, errors = state, seen if errors is None else errors & seen
        else:
            if not errors:
                raise changes_too_often(report.path)
            last = trial.report.findings
            last[:] = [f for f in last if f.severity != ERROR or f in errors]
        report.include(trial.report)
        report.losses += trial.report.losses
        self.nodes |= trial.nodes
        self.files += trial.files
        self.errors += trial.errors
        self.unreached += trial.unreached
        return found

    def _check(self, dataset: layouts.Found, member: str) -> None:
        (folder, layout, kind), node = dataset, self._open(dataset, member)
        is_damaged = isinstance(node, FormatError) and not folder.prefix
        if is_damaged and kind == "group" and next(layouts.find_members(folder), None):
            # Its members are checked as if it had no document.
            node = self._open(dataset._replace(layout="folder"), member)
            if isinstance(node, NodeLayout):
                node.description_files = layouts.group_class(layout).description_files
        self.nodes[member] = node
        if isinstance(node, Exception):
            return
        used = {folder.full(name) for name in node.description_files}
        self._check_description(node)
        if kind == "array" and node.is_column and not folder.prefix:
            try:
                layouts.committing(dataset)
            except FormatError as error:
                where = {"file": member or "."}
                self.report.note("metadata", "no-table", error.message, **where)
        if kind != "group":
            try:
                if isinstance(node, ArrayLayout):
                    used |= self._check_array(node, member)
                elif isinstance(node, TableLayout):
                    used |= self._check_table(node, member)
            except OSError as error:  # of listing the files of chunks
                self._description_failed(error)
                return
        else:
            for name in layouts.member_names(folder):
                inner = joined_name(member, name)

                def find(name: str = name) -> layouts.Found | None:
                    folder.check_name()  # else the whole dataset is checked again
                    return layouts.find_member(folder, name)

                try:
                    found = self._check_changing(find, inner)
                except (FormatError, OSError) as error:
                    number = getattr(error, "errno", None)
                    if number in CHANGING and not folder.is_remote:
                        raise
                    used.add(folder.full(name))
                    self._description_failed(error)
                    continue
                if found is None:
                    message = ""
                    if folder.dataset(name).is_leftover:
                        message = "a dataset that was not created or removed to the end"
                    elif layouts.is_left(folder, name):
                        message = (
                            "this folder is no member, as the document of the group "
                            "has none of this name: it was renamed or moved here, or "
                            "it is what is left of a member that was removed"
                        )
                    if message:
                        used.add(folder.full(name))
                        self.report.note("files", "unused", message, file=inner)
                    elif "zarr" in (layout, self.report.layout):
                        self._check_lost(folder, member, name, used)
                    continue
                used.add(folder.full(name))
                if layout != "folder" and found.layout == "folder":
                    self._note_no_document(inner)
                if found.layout.startswith("zarr"):
                    self._note_no_copy(folder, name, found, inner)
            self._check_copies(folder, member)
            self._check_lengths(folder, member, node)
        columns = node.columns.values() if isinstance(node, TableLayout) else ()
        if not all(each.has_digests for each in (node, *columns)):
            message = "there are no digests: damage is found only where the codec fails"
            if layout == "zarr-python":
                message = "no digest of it is checked: damage is found only where "
                message += "zarr-python can't read it"
            self.report.note("chunks", "no-checksum", message, file=member or ".")
        if layout != "folder" and not folder.is_remote:
            self._note_strays(folder, member, used)

    def _check_lost(
        self, folder: Folder, member: str, name: str, used: set[str]
    ) -> None:
        """Report the arrays in a folder, which is no member, without documents."""
        for path in _lost_documents(folder, name):
            message = "the document of an array is missing: the folder has its chunks"
            lost = folder.damage(message, path + "/" + ZARR_JSON)
            if path != name and folder.full(name) not in used:
                self._note_no_document(joined_name(member, name))
            used.update((folder.full(name), folder.full(path)))
            self.nodes[joined_name(member, name)] = lost
            self._description_failed(lost)

    def _note_no_document(self, member: str) -> None:
        message = "a folder of datasets, and no group: it has no document"
        self.report.note("metadata", "no-document", message, file=member)

    def _open(self, found: layouts.Found, member: str) -> NodeLayout | Exception:
        """Return the dataset or member, or the error of opening it, which is noted."""
        try:
            self._check_changes(found.folder, member)
            return found.open_damaged()
        except (FormatError, OSError, UsageError) as error:
            if not _is_unsupported(error):
                self._description_failed(error)
            elif member:
                message = "not checked: %s" % error
                self.report.note("metadata", "unsupported", message, file=member)
            else:
                raise
            return error

    def _name(self, path: str) -> str:
        """Return the name of a file in the dataset."""
        if is_url(path):
            inner = path_of(path).removeprefix(path_of(self.report.path))
            return inner.strip("/") or "."
        return os.path.relpath(path, self.report.path).replace(os.sep, "/")

    def _shown(self, folder: Folder, full: str) -> str:
        """Return the name that is shown of a file, whose name is `Folder.full`."""
        return self._name(folder.store.path(full)) if full else "."

    def _description_failed(self, error: Exception) -> None:
        self.errors.append(error)
        name = getattr(error, "filename", None)
        path = name if isinstance(name, str) else self.report.path
        message = error.message if isinstance(error, FormatError) else str(error)
        if isinstance(error, OSError) and error.strerror:
            message = error.strerror
        section = getattr(error, "section", None) or "files"
        kind = failure_kind(error)
        if kind is not None:
            path = path.removesuffix("/" + STAGING)
        self.report.add(section, kind or "description", message, file=self._name(path))

    def _check_description(self, node: NodeLayout) -> None:
        """Check the attributes, and whether another program wrote the description."""
        name = self._name(node.folder.path(*node.description_files[:1]))
        if node.changed_elsewhere:
            self.report.note("metadata", "changed", CHANGED, file=name)
        if node.folder.tree.is_stale(node.folder.prefix[:-1]):
            message = (
                "the document around it has another copy of this one, which counts: "
                "the next change writes it again"
            )
            self.report.note("metadata", "copy", message, file=name)
        try:
            attributes = node.read_attributes()
        except (FormatError, OSError) as error:
            self._description_failed(error)
            return
        for key, value in attributes.items() if node.name == "zarr" else ():
            # A float in `MASK` is stored as text.
            unusual = None if key == MASK else unusual_json([key, value])
            if unusual is not None:
                message = (
                    "the attribute %a has %s, and TensorStore, for one, refuses the "
                    "document" % (key, unusual)
                )
                self.report.note("metadata", "python-json", message, file=name)
        recovered = told(attributes)
        if recovered:
            name = self._name(node.folder.path())
            self.report.note("metadata", "recovered", recovered, file=name)

    def _check_changes(self, folder: Folder, member: str) -> None:
        """Note what an interrupted writer has left, which is in the whole dataset."""
        if folder.prefix:
            return
        shown = member or "."
        known = folder.tree.read()
        has_folder = folder.store.lists and folder.is_folder(STAGING)
        if any(known.pending.values()) and folder.store.can_rename and not has_folder:
            message = (
                "a change was committed, and the folder '%s' with its files is "
                "missing: old and new files may be mixed" % STAGING
            )
            self.report.add("files", "change", message, file=shown)
        elif known.pending:
            message = "a change was committed, and the next writer completes it"
            self.report.note("files", "change", message, file=shown)
        elif has_folder and folder.names(STAGING):
            message = (
                "files of a change that was not committed, or is being made: the next "
                "writer removes them"
            )
            self.report.note("files", "change", message, file=shown)

    def _note_no_copy(
        self, folder: Folder, name: str, found: layouts.Found, inner: str
    ) -> None:
        """Note a member that a group that has copies does not commit."""
        members = folder.tree.state.members
        if members is not None and folder.full(name) not in members:
            cause = "another program has made it"
            if found.folder.tree.state.root.epoch:  # its document is of Bloscpack
                cause = "a call that replaces it was interrupted, or it was moved here"
            message = (
                "%s, and the document of the group has no copy of its document: "
                "zarr-python and xarray find it with use_consolidated=False" % cause
            )
            self.report.note("metadata", "no-copy", message, file=inner)

    def _check_copies(self, folder: Folder, member: str) -> None:
        """Check the order of copies in a document; note members without a folder."""
        members = folder.tree.state.members or {}
        missed = () if folder.prefix else missed_by_others(members)
        if missed:
            message = (
                "the copies of members are not sorted by their paths: zarr-python "
                "before 3.4 does not find %s; the next change sorts them"
                % listed(missed)
            )
            shown = joined_name(member, ZARR_JSON)
            self.report.add("metadata", "order", message, file=shown)
        for name in layouts.missing_members(folder):
            message = (
                "the document of the group has this member, and its folder is missing: "
                "it was renamed, moved, or removed by another program; put back under "
                "this name, it is a member again"
            )
            shown = joined_name(member, name)
            self.report.note("files", "no-folder", message, file=shown)

    def _check_lengths(self, folder: Folder, member: str, group: NodeLayout) -> None:
        """Report the arrays of a group that are short along a dimension."""
        arrays = {
            name.rpartition("/")[2]: (node.dims, node.shape)
            for name, node in self.nodes.items()
            if name and name.rpartition("/")[0] == member
            if isinstance(node, ArrayLayout)
        }
        for _ in range(ATTEMPTS):
            unequal = unequal_lengths(arrays)
            if not unequal or is_pyramid(group.read_attributes()):
                return
            # A writer may have appended to all of them while they were checked.
            before, arrays = arrays, {}
            folder.tree.renew()
            for name in before:
                with suppress(FormatError, OSError):
                    found = layouts.find_member(folder, name)
                    node = None if found is None else found.open_damaged()
                    if isinstance(node, ArrayLayout):
                        arrays[name] = node.dims, node.shape
            if arrays == before:
                break
        text = "xarray can't open the group: " + told_unequal(unequal)
        self.report.add("metadata", "lengths", text, file=member or ".")

    # Arrays

    def _check_array(
        self, layout: ArrayLayout, member: str, column: str = ""
    ) -> set[str]:
        """Check the chunks; return the names of the files that were expected.

        `column` is its name if it is a column of the table `member`.
        """
        report = self.report
        used: set[str] = set()
        report.narrays += 1
        size = math.prod(layout.shape) * layout.dtype.itemsize
        report.nbytes = (report.nbytes or 0) + size
        for fields, source in layout.parts():
            checks = self._check_part(layout, source)
            used |= {check.file for check in checks}
            name = joined_name(member, column, *fields)
            own = self._check_reach(layout, name)
            used |= own
            report.losses += losses_of(name, checks)
            for check in checks:
                # If the document was altered, the missing rows may have been written;
                # and no document says whether booleans or times were.
                allowed = layout.may_lack_files and (own or not layout.leaves_out)
                if allowed and {MISSING, SHORT} & {f.kind for f in check.findings}:
                    check.certain = False
                if check.failure is not None:
                    self.errors.append(check.failure)
                check.count()
                check.findings = [
                    replace(f, file=self._shown(layout.folder, f.file or ""))
                    for f in check.findings
                ]
                report.include(check)
                if self._keep_sound or not (check.ok and check.certain):
                    self.files.append((name, check))
        return used

    def _check_reach(self, layout: ArrayLayout, name: str) -> set[str]:
        """Return the shards of an array whose document was altered, else nothing.

        Note the rows that the document does not reach. Shards that state another array,
        another place or none are left out.
        """
        altered = layout.changed_elsewhere and not layout.folder.is_remote
        if not altered or not isinstance(layout, ZarrArray):
            return set()
        length, names = (layout.shape or (1,))[0], set()
        for shard, (start, stop) in layout.stated_shards():
            file = layout.folder.full(shard)
            names.add(file)
            if stop > length:
                rows = max(start, length), stop
                message = "the document was altered, and does not reach these rows"
                shown = self._shown(layout.folder, file)
                self.report.note("files", "unreached", message, file=shown, rows=rows)
                self.unreached.append(RowLoss(name, rows))
        return names

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

        ordered(stored, work, deliver, outer)
        is_complete = not (layout.may_lack_files and layout.leaves_out)
        if is_complete or layout.changed_elsewhere:
            missing = gaps_in(stored, range(source.nfiles))
            checks += [missing_files(layout, source, files) for files in missing]
        move_claimed(checks, layout, source, self._nthreads)
        return sorted(checks, key=lambda check: check.numbers[0])

    def _check_table(self, table: TableLayout, member: str) -> set[str]:
        """Check the columns; return the names of the files that were expected."""
        report = self.report
        for name, error in (table.unopened or {}).items():
            report.losses.append(RowLoss(joined_name(member, name), None))
            if _is_unsupported(error):
                shown = joined_name(member, name)
                report.add("metadata", "unsupported", str(error), file=shown)
            else:
                self._description_failed(error)
        used = set(table.unopened or ())
        lengths = {name: c.shape[0] for name, c in table.columns.items()}
        if len(set(lengths.values())) > 1:
            texts = ", ".join("'%s': %d" % item for item in lengths.items())
            report.add(
                "metadata",
                "unequal",
                "expected columns of the same length, found %s" % texts,
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
        count = 0
        for name, reason in _strays(folder, "", used):
            count += 1
            if count > STRAYS_KEPT:
                self.report.nnotes += 1
                continue
            self.report.note("files", "unused", reason, file=joined_name(member, name))


def _state_of(found: layouts.Found) -> object:
    """Return a value that changes when a writer commits a change of an array or table.

    Members of a group are checked again by themselves. Raises `StaleDataset` if another
    dataset has got the name. None at a URL.
    """
    folder, layout, kind = found
    if folder.is_remote:
        return None
    folder.check_name()
    with suppress(LinkFound, FormatError):  # opening it raises the error
        known = folder.tree.renew()
        if kind == "group":
            return folder.prefix[:-1] in (known.members or ())
        own: object = known.version
        if known.members is not None:  # other members may change all the time
            stated, start = {**known.members, **known.pending}, folder.prefix
            own = {n: new for n, new in stated.items() if (n + "/").startswith(start)}
        of_kind = layouts.array_class if kind == "array" else layouts.table_class
        files = of_kind(layout).description_files
        prefixes = ["", *(name + "/" for name in folder.folders())]
        names = [*DOCUMENTS, *(prefix + file for prefix in prefixes for file in files)]
        return own, [(name, folder.identity(name)) for name in names]
    return None


def _is_unsupported(error: Exception) -> bool:
    """Return whether an error says that nothing is damaged."""
    return isinstance(error, Unsupported) or not isinstance(
        error, (FormatError, OSError)
    )


def joined_name(*parts: str) -> str:
    """Return names with slashes between them."""
    return "/".join(part for part in parts if part)


def lost_rows(checks: list[FileCheck]) -> list[tuple[int, int]]:
    """Return the rows of a part of an array whose chunks are not intact, as runs."""
    return union(checks[0].rows_of(*run) for run in _lost_chunks(checks))


def losses_of(name: str, checks: list[FileCheck]) -> list[RowLoss]:
    """Return what is lost of a part of an array: its rows, or items of them."""
    return [
        RowLoss(name, checks[0].rows_of(*run), checks[0].region_of(*run))
        for run in _lost_chunks(checks)
    ]


def _lost_chunks(checks: list[FileCheck]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of runs of chunks that are not intact."""
    damaged = [check for check in checks if not check.ok]
    if damaged and damaged[0].grid.is_rows:
        lost = union(run for check in damaged for run in check.lost)
        yield from ((start, stop - 1) for start, stop in lost)
        return
    for check in damaged:
        if check.intact:
            for run in check.lost:
                yield from zip(range(*run), range(*run), strict=True)
            continue
        slots = check.grid.slots
        shards = check.numbers[0] // slots, check.numbers[-1] // slots + 1
        for first, last in boxes_of(*shards, check.grid.counts):
            yield first * slots, last * slots + slots - 1


def _lost_documents(folder: Folder, name: str) -> Iterator[str]:
    """Yield the arrays of Zarr in a folder, which is no member, without documents.

    Members are removed by renaming their folders, so none is left without a document.
    Where the group has copies of the documents, only the copies make members: a writer
    that was killed may have left the chunks of a new one.
    """
    if folder.is_remote or folder.tree.state.members is not None:
        return
    candidates = [name] if folder.is_folder(name) else []
    for outer in candidates:
        entries = folder.entries(outer)
        names = [last for last, _ in entries]
        # A document that is there may say that it is no member.
        if ZARR_JSON in names or name_folder(names):
            continue
        first = _first_file(folder, outer + "/c")
        is_ours = first is not None and folder.read(first, len(MAGIC)) == MAGIC
        # Deeper folders may be of any kind.
        if first is not None and (is_ours or outer == name):
            yield outer
        elif len(candidates) < layouts.MAX_SEARCHED:
            inner = (n for n, kind in entries if kind == stat.S_IFDIR)
            candidates += [outer + "/" + n for n in inner if is_member_name(n)]


def _first_file(folder: Folder, name: str) -> str | None:
    """Return the first chunk in a folder; of an array without axes, that is a file."""
    outer, _, last = name.rpartition("/")
    kinds = dict(folder.entries(outer))
    while kinds.get(last) == stat.S_IFDIR:
        kinds = dict(folder.entries(name))
        last = min(filter(str.isdecimal, kinds), default="")
        name += "/" + last
    return name if kinds.get(last) == stat.S_IFREG else None


def _strays(folder: Folder, prefix: str, used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the names in a folder that are not in `used`, with the reason.

    `used` has names in the dataset, `prefix` is a name in the folder. No link is
    followed.
    """
    try:
        entries = folder.entries(prefix)
    except StaleDataset:
        if not prefix:
            raise
        return  # a writer has removed the folder since it was listed
    for last, kind in entries:
        name = prefix + "/" + last if prefix else last
        if folder.prefix + name in used or name == STAGING:
            continue
        if kind == stat.S_IFLNK:
            yield name, "a symbolic link, which is not followed"
        elif kind != stat.S_IFDIR:
            yield name, "a file that the dataset does not use"
        elif LEFTOVER.fullmatch(last) and folder.exists("%s/%s" % (name, MARK)):
            yield name, "a folder that an interrupted writer left"
        else:
            yield from _strays(folder, name, used)
