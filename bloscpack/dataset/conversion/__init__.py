"""Convert arrays, tables and groups between files and folders of different formats.

To add a format, add a module with a reader or a writer, and one entry of `FORMATS`.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import warnings
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from operator import index
from typing import Any

from numpy.typing import DTypeLike

from ..._check.note import told
from ..._commit.access import limits_of
from ..._commit.replacing import check_apart, check_distinct
from ..._format.dtypes import DType, check_unit
from ..._format.names import listed
from ..._format.other_formats import (
    PARQUET,
    PREFIX_LENGTH,
    begins_as_own,
    name_folder,
    name_format,
)
from ..._storage.paths import is_url, local_path, shown_name, without_url
from ..._storage.zip_store import find_zip, is_zip
from ..._types import JsonObject, Path
from ...abstract_io import Progress
from ...args import known_settings
from ...constants import MAGIC
from ...exceptions import (
    FileNotFound,
    NotReadable,
    StorageError,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ...log import printable
from ..columns import MASK_OF
from ..folder import Folder, until_unchanged
from ..layouts import LAYOUTS, find_any
from . import contents
from .array_formats import UNKNOWN_LENGTH
from .contents import MASKS, Request
from .ome_zarr import with_new_images


@dataclass
class Format:
    """A format of files or folders.

    Attributes
    ----------
    name
        The name, for users.
    module
        The module with the reader and the writer: the functions ``read`` and ``write``,
        behind which the name follows if the module has several formats.
    suffixes
        The ends of the names of such files.
    holds
        What the writer takes: kinds of contents, and `ATTRIBUTES`, `FILL`, `AXES` and
        `MASKS`. With these, the writer keeps which items of a column are missing; else
        the mask becomes a column as any other, and a notice names it.
    begins
        The first bytes of each file; empty if they say nothing.
    layout
        The layout of a dataset; empty for other formats.
    """

    name: str
    module: str
    suffixes: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    begins: bytes = b""
    layout: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is one file."""
        return not self.layout and self.name != "bigfile"

    @property
    def attributes(self) -> bool:
        """Whether the format holds attributes."""
        return ATTRIBUTES in self.holds

    def read(self, path: str, request: Request) -> contents.Content:
        """Return the contents of a file or folder that a request wants."""
        content: contents.Content = self._function("read")(path, request)
        with contents.naming_file(path):
            return request.chosen(content)

    def write(self, content: contents.Content, request: Request) -> None:
        """Write contents to the target of a request."""
        self._function("write")(content, request)

    def check_names(
        self, content: contents.Content, request: Request, where: str = ""
    ) -> None:
        """Raise `UsageError` if the target can't have the name of a column or a member.

        The function ``check_name`` of the module raises one for a name. `where` is the
        path of the contents.
        """
        # An array with fields stays one there.
        if contents.is_table(content) and self.module != "array_formats":
            content = contents.as_table(content)
        for name, member in content.members.items():
            path = contents.inside(where, name)
            try:
                self._function("check_name")(name, content.kind, request)
            except UsageError as error:
                raise UsageValueError(
                    "'%.99s': %s; convert --rename '%.99s=NAME' gives it another name"
                    % (printable(path), error, printable(path))
                ) from error
            self.check_names(member, request, path)

    def _function(self, verb: str) -> Any:
        module = import_module("." + self.module, __name__)
        return getattr(module, "%s_%s" % (verb, self.name), None) or vars(module)[verb]


ATTRIBUTES, FILL, AXES = "the attributes", "the fill value", "the names of the axes"
ROWS = ("array", "table")
ALL, DATA = (*ROWS, "group"), (*ROWS, ATTRIBUTES)
HDF5 = (".h5", ".hdf5", ".nc", ".nc4")
FORMATS = {
    found.name: found
    for found in (
        Format("npy", "array_formats", (".npy",), ROWS, b"\x93NUMPY"),
        Format("npz", "array_formats", (".npz",), ALL),
        Format("blp", "array_formats", (".blp",), DATA, MAGIC),
        Format("csv", "csv_files", (".csv",), (*ROWS, MASKS)),
        Format(
            "parquet", "parquet_files", (".parquet", ".pq"), (*DATA, MASKS), PARQUET
        ),
        Format(
            "hdf5",
            "hdf5_files",
            HDF5,
            (*ALL, ATTRIBUTES, FILL, AXES, MASKS),
            b"\x89HDF\r\n\x1a\n",
        ),
        Format(
            "bigfile", "bigfile_trees", (".bigfile",), (*ALL[1:], ATTRIBUTES, MASKS)
        ),
        *(
            Format(name, "datasets", ("." + name,), holds, layout=name)
            for name, found in LAYOUTS.items()
            for kinds in [ALL if found.fits_groups else ROWS]
            for holds in [(*kinds, ATTRIBUTES, FILL, MASKS, *[AXES] * (name == "zarr"))]
            if "array" in found.kinds
        ),
    )
}
# The formats that can be written: some layouts can only be read.
WRITTEN = {
    name: found
    for name, found in FORMATS.items()
    if not (found.layout and LAYOUTS[found.layout].instead)
}
# Formats without compression. Others may be smaller by the factor `MAX_RATIO`.
PLAIN = ("npy", "npz", "bigfile")
MAX_RATIO = 1000
# Formats with text of variable length.
HAVING_TEXT = ("csv", "parquet", "hdf5", "zarr")
# Formats in which each column has a name, and an array alone is no column.
NAMING = ("csv", "parquet")
# Formats in which other programs know how numbers are stored, by attributes of netCDF;
# and the number of arrays of which a notice for others says it.
KNOWING_CODES, MAX_CODED = ("hdf5", "zarr"), 20
# The folder of the names of streams, which have no suffix: text from a stream is CSV.
DEVICES = "/dev/"
# Settings that have no effect on formats without Blosc, as defaults of a user may not.
UNUSED_SETTINGS = ("cname", "clevel", "shuffle", "auto")
# The options that say how some formats are read; the others are for all.
OF_TEXT = ("delimiter", "decimal", "encoding", "skip_lines", "times")
OF_RAW = ("dtype", "shape")
READ_BY = {
    **dict.fromkeys(OF_TEXT, ("csv",)),
    **dict.fromkeys(OF_RAW, ("raw",)),
    "dtypes": ("csv", "parquet"),
}
# A plain folder of datasets, and a ZIP file of `savez`.
FOLDER, ARCHIVE = Format("folder", "datasets"), Format("archive", "datasets")
# What a file of an unknown format is called.
UNKNOWN = (
    "a file that begins %r; raw items are read by 'blpk convert --dtype TYPE --shape "
    "N,...'"
)
# What a file of text is called; the end of its name does not say that it is CSV.
TEXT = (
    "text, which 'blpk convert --delimiter tab - TARGET < FILE' reads as CSV: a name "
    "must end with .csv"
)
# Compressed files, which have the names of the programs that decompress them.
COMPRESSED = (
    "a gzip file", "a zstd file", "a bzip2 file", "an xz file", "an lz4 file",
)  # fmt: skip
# Items without a header.
RAW = Format("raw", "array_formats")


def source_format(path: str) -> Format:
    """Return the format of a file or folder: by its content, or else by its name."""
    if is_url(path) and path.partition("?")[0].endswith(FORMATS["blp"].suffixes):
        return FORMATS["blp"]
    if is_url(path) or os.path.isdir(path) or _file_of(path) != path:
        store = find_any(Folder.open(path))
        if store is not None:
            return FORMATS.get(store.layout, FOLDER)
        known = name_folder(os.listdir(path) if os.path.isdir(path) else ())
        expected = "expected a dataset, a Zarr store or a BigFile tree, found %s" % (
            known or "another folder"
        )
        if is_url(path):
            expected = (
                "at a URL, expected a .blp file, a dataset or a Zarr store: download a "
                "file of another format first"
            )
        elif import_module(".bigfile_trees", __name__).is_tree(path):
            return FORMATS["bigfile"]
        # The log of a Delta table, say, names the files that count.
        elif not known and import_module(".parquet_files", __name__).is_folder(path):
            return FORMATS["parquet"]
        raise NotReadable(expected, filename=shown_name(path))
    with open(path, "rb") as fp:
        begin = fp.read(PREFIX_LENGTH)
        size = os.fstat(fp.fileno()).st_size
    detected = _file_format(path, begin)
    if detected is None:
        known = name_format(begin, size)
        if known in COMPRESSED:
            text = "; '%s -dc FILE | blpk convert - TARGET' reads its content"
            known += text % known.split()[1]
        known = known or (_unknown(begin) if begin else "an empty file")
        text = "expected one of the formats %s, found %s"
        raise NotReadable(text % (", ".join(FORMATS), known), filename=path)
    return detected


def _unknown(begin: bytes) -> str:
    """Return what a file of no known format is called; it begins with `begin`."""
    is_text = not begin.translate(None, bytes(range(32, 127)) + b"\t\r\n")
    return TEXT if is_text and b"\n" in begin else UNKNOWN % begin[:8]


def has_store(path: str) -> bool:
    """Return whether there is a dataset at a path, perhaps in a ZIP file."""
    is_possible = os.path.isdir(path) or _file_of(path) != path
    return is_possible and find_any(Folder.open(path)) is not None


def split_members(
    path: str, is_dataset: Callable[[str], bool] = has_store
) -> tuple[str, list[str]]:
    """Return the file or folder of a name, and the names of members that follow.

    There are none behind a name that does not exist, and behind a dataset, whose
    members have paths. `is_dataset` says whether there is a dataset at a path.
    """
    outer, members = path.rstrip(os.sep) or path, list[str]()
    while outer and not (is_url(path) or _is_source(outer, is_dataset)):
        outer, _, last = outer.rpartition("/")
        members.insert(0, last)
    return (outer, members) if outer and members else (path, [])


def _is_source(path: str, is_dataset: Callable[[str], bool]) -> bool:
    """Return whether a path is a file, or a folder that is not a part of another."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError:
        return True  # the error of opening it is better
    except (OSError, ValueError):
        return os.path.islink(path) or is_dataset(path)
    is_block = is_folder and os.path.isfile(os.path.join(path, "header"))
    is_tree = import_module(".bigfile_trees", __name__).is_tree
    return not (is_block and is_tree(os.path.dirname(path) or ".")) or is_dataset(path)


def inner_content(
    content: contents.Content, path: str, members: Sequence[str]
) -> contents.Content:
    """Return the content of a member in a file or folder; raise `FileNotFound`."""
    for number, member in enumerate(members):
        if member not in content.members:
            names = printable(", ".join(content.members) or "no members")
            raise FileNotFound(
                "there is no '%s' in '%s', which has %.60s"
                % (member, "/".join([shown_name(path), *members[:number]]), names)
            )
        content = contents.member_of(content, member)
    return content


def _file_of(path: str) -> str:
    """Return the ZIP file that a name is in; any other name as it is."""
    archive = None if os.path.exists(path) else find_zip(os.path.abspath(path))
    return path if archive is None else archive[0]


def _file_format(path: str, begin: bytes) -> Format | None:
    """Return the format of a file that begins with some bytes; None if unknown."""
    for known in FORMATS.values():
        if known.begins and begin.startswith(known.begins):
            return known
    if is_zip(path, begin):
        store = find_any(Folder.open(path))
        if store is None:
            return FORMATS["npz"]
        return ARCHIVE if begins_as_own(begin) else FORMATS.get(store.layout, FOLDER)
    if begin and path.startswith(DEVICES):
        try:
            getincrementaldecoder("utf-8")().decode(begin)
        except UnicodeDecodeError:
            return None
        return FORMATS["csv"] if b"\0" not in begin else None
    by_name = _by_suffix(path)
    return None if by_name is None or by_name.layout else by_name


def target_format(path: str, name: str | None) -> Format:
    """Return the format to write; raise `UsageError` if nothing says which."""
    wanted = _by_suffix(path) if name is None else FORMATS.get(name)
    if wanted is None:
        problem = "there is no format '%s'" % name
        if name is None:
            problem = "the name '%s' does not say which format to write" % path
        raise UsageValueError("%s; the formats are %s" % (problem, ", ".join(WRITTEN)))
    return wanted


def _by_suffix(path: str) -> Format | None:
    path = path.rstrip(os.sep).lower()
    return next((f for f in FORMATS.values() if path.endswith(f.suffixes)), None)


@dataclass
class Conversion:
    """What was converted.

    Attributes
    ----------
    source, target
        The names of the files or folders.
    source_format, target_format
        The names of their formats; ``'zarr-python'`` for what only that package reads.
    kind
        ``'array'``, ``'table'`` or ``'group'``.
    nbytes
        Number of plain bytes.
    lost
        What the target can't hold, in words.
    recovered
        Sentences about the losses of an earlier `recover`.
    notes
        Sentences about what other programs read differently.
    """

    source: str
    target: str
    source_format: str
    target_format: str
    kind: str
    nbytes: int
    lost: list[str]
    recovered: list[str]
    notes: list[str]

    def as_dict(self) -> JsonObject:
        """Return the attributes as a dictionary."""
        return dict(vars(self))


def convert(
    source: Path,
    target: Path,
    *,
    to: str | None = None,
    force: bool = False,
    dtypes: Mapping[str, object] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    skip_lines: int | None = None,
    times: bool = False,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    chunks: int | tuple[int, ...] | None = None,
    shards: int | tuple[int, ...] | None = None,
    missing: bool = True,
    nthreads: int | None = None,
    sync: bool | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: object,
) -> Conversion:
    """Convert a file or folder to another format, in bounded memory.

    The formats are ``npy``, ``npz``, ``blp``, ``csv``, ``parquet``, ``hdf5``,
    ``bigfile`` and the layouts of datasets. Any Zarr store can be read, too.

    Parameters
    ----------
    source
        The file or folder, or the URL of a ``.blp`` file or a dataset. Its content says
        which format it has. Names of members may follow: ``'data.nc/t'``.
    target
        The file or folder to write, which appears when it is complete. A stream, such
        as ``/dev/stdout``, is written directly.
    to
        The format of `target`; by default the end of its name says which.
    force
        Whether to replace an existing file, or an existing dataset.
    dtypes
        Types of the columns of a CSV or Parquet file, by name. The others are found in
        the file.
    delimiter
        The character between the values of CSV files, also of one that is written; by
        default a comma. ``'tab'`` is a tab.
    decimal
        The character in front of the fraction of a number in CSV files, also in one
        that is written: ``'.'`` or ``','``.
    encoding
        The encoding of CSV files, also of one that is written; by default UTF-8.
    skip_lines
        Number of lines in front of the line of names in a CSV file.
    times
        Whether the columns of a CSV file in which all values are ISO dates or times
        become times, of the coarsest unit that holds them.
    columns
        The columns of a table, or the members of a group, that are wanted, in this
        order. A member inside of a group has slashes in its name.
    exclude
        Columns or members that are not wanted.
    rename
        New names of columns or members, by their names in the source.
    dtype
        The type of the items in a source without a header: a file of raw items.
    shape
        The shape of the array in such a file, in C order. One length may be -1: the
        size of the file tells it. By default the array has one axis.
    chunks, shards
        Those of each array of a dataset, as for `create_array`.
    missing
        Whether items with the fill value of an array of Zarr format 2 with names of
        axes are missing, as xarray reads them: then it becomes ``_FillValue``.
    nthreads
        Number of threads for ``.blp`` files; None for the default.
    sync
        Whether the result is on the disk when this returns; None means that it is if it
        replaces another one.
    progress
        Called with the number of plain bytes of each block of rows; of those that are
        converted again, too.
    expect
        Called once, with the number of all plain bytes.
    settings
        Settings of Blosc, ``cname``, ``clevel`` and ``shuffle``, and ``auto``, as in
        `create_array`.

    Returns
    -------
    Conversion
        What was converted; its attribute ``lost`` lists what `target` can't hold.

    Raises
    ------
    FormatError
        If the source is damaged, or has no known format.
    UsageError
        If the target can't hold the values, or if a package is missing.
    FileExistsError
        If there is a target.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> dataset.create_array('n.zarr', [1, 2, 3], attrs={'unit': 'm'}).close()
    >>> done = dataset.convert('n.zarr', 'n.npy')
    >>> done.kind, done.nbytes, done.lost
    ('array', 24, ['the attributes'])
    """
    in_name, members = split_members(os.fsdecode(local_path(source)))
    out_name = os.fsdecode(local_path(target))
    without_url(out_name, "the target of a conversion")
    check_distinct(_file_of(in_name), out_name)
    check_apart(in_name, out_name)
    wanted = target_format(out_name, to)
    for keyword, given in (("dtypes", dtypes), ("rename", rename)):
        if given is not None and not isinstance(given, Mapping):
            text = "%s: expected a dictionary with names of columns, found %.200r"
            raise UsageTypeError(text % (keyword, given))
    raw = _decode_raw(in_name, dtype, shape)
    read_as = source_format(in_name) if raw is None else RAW
    if dtypes and read_as.name not in READ_BY["dtypes"]:
        raise UsageTypeError(
            "types of columns are for text and for Parquet: '%s' has types"
            % shown_name(in_name)
        )
    of_text: dict[str, Any] = {}
    for name, what, value, formats in (
        ("delimiter", "a delimiter", delimiter, (read_as, wanted)),
        ("decimal", "a decimal point", decimal, (read_as, wanted)),
        ("encoding", "an encoding", encoding, (read_as, wanted)),
        ("skip_lines", "a number of lines to skip", skip_lines, (read_as,)),
        ("times", "the search for times", times or None, (read_as,)),
    ):
        if value is not None:
            of_text[name] = value
            if FORMATS["csv"] not in formats:
                of_source = " as the source" * (formats == (read_as,))
                raise UsageTypeError("%s is for CSV files%s" % (what, of_source))
    # Standard input, perhaps as a copy in a private file, limits no reader.
    is_device = in_name.startswith(DEVICES)
    streamed = contents.is_streamed(out_name)
    if streamed and not wanted.is_file:
        raise UsageTypeError(
            "the format '%s' is a folder, which can't be written to a stream; %s can"
            % (wanted.name, ", ".join(f.name for f in WRITTEN.values() if f.is_file))
        )
    if (chunks, shards) != (None, None) and not wanted.layout:
        raise UsageTypeError("the format '%s' has no chunks to choose" % wanted.name)
    if not wanted.layout and wanted is not FORMATS["blp"]:
        known_settings(settings, UNUSED_SETTINGS)
    request = Request(
        out_name,
        force=force,
        sync=sync,
        nthreads=nthreads,
        settings=settings,
        chunks=chunks,
        shards=shards,
        dtypes={name: decode_type(text) for name, text in (dtypes or {}).items()},
        **of_text,
        columns=None if columns is None else _names(columns),
        exclude=_names(exclude),
        rename=rename or {},
        raw=raw,
        limits=None if is_url(in_name) or is_device else limits_of(_file_of(in_name)),
        layout=wanted.layout,
        fixed_text=wanted.name not in HAVING_TEXT,
        progress=progress,
        missing=missing,
    )
    expects = [] if expect is None else [expect]
    convert = partial(_converted, request, read_as, wanted, in_name, members, expects)
    return convert() if streamed else until_unchanged(convert)


def _converted(
    request: Request,
    read_as: Format,
    wanted: Format,
    in_name: str,
    members: Sequence[str],
    expects: list[Callable[[int], object]],
) -> Conversion:
    """Convert once; `convert` calls it again if the source has changed."""
    request = replace(request, resources=ExitStack(), lost=[], masked=[])
    with request.telling_change(), request.resources:
        content = inner_content(read_as.read(in_name, request), in_name, members)
        notes = _notes(content, read_as, wanted, request)
        if "group" not in wanted.holds:
            unnamed = None
            if wanted.name in NAMING:
                unnamed = contents.NO_NAMES.get(read_as.name, "")
            content = contents.without_group(content, request.note_loss, unnamed)
        _check_kind(content, wanted, request.target)
        wanted.check_names(content, request)
        for what in _not_held(content, wanted):
            request.note_loss(what)
        if expects:
            expects.pop()(content.nbytes)
        if not contents.is_streamed(request.target):
            _check_room(content.nbytes, wanted, in_name, request.target)
        wanted.write(content, request)
        recovered = [
            "'%s': %s" % (name, text) if name else text
            for name, node in contents.nodes_of(content)
            if (text := told(node.attrs))
        ]
    source = "/".join([shown_name(in_name), *members])
    names = source, request.target, read_as.name, wanted.name
    return Conversion(
        *names, content.kind, content.nbytes, request.lost, recovered, notes
    )


def _notes(
    content: contents.Content, read_as: Format, wanted: Format, request: Request
) -> list[str]:
    """Return sentences about attributes of Zarr format 2, which may be converted."""
    notes = []
    if request.masked and wanted.attributes:
        notes.append(
            "the fill value of Zarr format 2 becomes the attribute '_FillValue' of %s: "
            "xarray reads items that are equal to it as missing (--no-missing, or "
            "missing=False, leaves it out)" % listed([*map(shown_name, request.masked)])
        )
    coded = {
        name or content.kind: codes
        for name, node in contents.nodes_of(content)
        if wanted.name not in KNOWING_CODES
        if isinstance(node, contents.Rows) and (codes := node.codes)
    }
    for name, codes in [*coded.items()][:MAX_CODED]:
        notes.append(contents.STORED_NUMBERS % (name, codes))
    if len(coded) > MAX_CODED:
        notes.append("so do '%d' others" % (len(coded) - MAX_CODED))
    is_old = request.layout == "zarr" and read_as.name not in WRITTEN
    if is_old and (note := with_new_images(content)):
        notes.append(note)
    return notes


def options_for(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `convert` that say how a file is read, of those given.

    The others are for CSV, or for items without a header, and the file is neither.
    """
    read_as = "raw"
    with suppress(NotReadable):
        read_as = source_format(path).name if options else read_as
    names = {read_as, *(["raw"] * path.startswith(DEVICES))}
    return {
        name: value
        for name, value in options.items()
        if not names.isdisjoint(READ_BY.get(name, names))
    }


def request_fields(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Request` for keywords of `convert`."""
    fields = {name: options[name] for name in options if name not in OF_RAW}
    if "dtypes" in fields:
        fields["dtypes"] = {n: decode_type(t) for n, t in fields["dtypes"].items()}
    raw = [options.get(name) for name in OF_RAW]
    return {**fields, "raw": _decode_raw(path, *raw)} if any(raw) else fields


def _check_room(nbytes: int, wanted: Format, source: str, target: str) -> None:
    """Raise `StorageError` if the target can't fit: a damaged shape may be huge.

    A target with compression is smaller, but not if the source states a multiple of
    what compression can reach: most of that would be fill values.
    """
    folder = os.path.dirname(os.path.abspath(target))
    while not os.path.exists(folder):  # the writer makes folders that are missing
        folder = os.path.dirname(folder)
    free = shutil.disk_usage(folder).free
    if nbytes <= free:
        return
    stored = None if is_url(source) else _stored_nbytes(_file_of(source))
    most = free if stored is None else min(free, stored)
    if wanted.name in PLAIN or nbytes > MAX_RATIO * most:
        within = "" if stored is None else " in a source of '%d' bytes" % stored
        raise StorageError(
            errno.ENOSPC,
            "the content has '%d' bytes%s, and only '%d' are free"
            % (nbytes, within, free),
            target,
        )


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; a text is none."""
    if isinstance(given, str):
        raise UsageTypeError(
            "expected a sequence of names, found the text '%s'" % given
        )
    return tuple(given)


def _stored_nbytes(path: str) -> int:
    """Return the size of a file, or of all files in a folder, without holes."""
    files = [os.stat(path)]
    if os.path.isdir(path):
        entries = ((at, name) for at, _, names in os.walk(path) for name in names)
        files = [os.lstat(os.path.join(at, name)) for at, name in entries]
    return sum(
        min(file.st_size, 512 * getattr(file, "st_blocks", file.st_size))
        for file in files
    )


def _decode_raw(
    path: str, text: object, shape: object
) -> tuple[DType, tuple[int, ...]] | None:
    """Return type and shape of raw items; raise `UsageError` unless both can be used.

    Returns None if neither is given.
    """
    if text is None and shape is None:
        return None
    if text is None:
        raise UsageTypeError("a shape needs a type: the dtype of the items")
    if isinstance(text, Mapping) and "names" not in text:
        raise UsageTypeError(
            "dtype: expected the type of items without a header, found a dictionary; "
            "dtypes={NAME: TYPE} gives types to columns"
        )
    dtype = _named_type(text)
    if dtype.hasobject or not dtype.itemsize:
        raise UsageValueError("raw items can't have the dtype '%s'" % text)
    given = (UNKNOWN_LENGTH,) if shape is None else shape
    try:
        lengths = tuple(map(index, given if isinstance(given, Sequence) else (given,)))
    except TypeError as error:
        raise UsageTypeError("a shape has whole numbers: %s" % error) from error
    if lengths.count(UNKNOWN_LENGTH) > 1 or min(lengths, default=0) < UNKNOWN_LENGTH:
        raise UsageValueError(
            "a shape has lengths of axes, of which one may be -1, not %s" % (lengths,)
        )
    if is_url(path) or not os.path.isfile(path):
        raise UsageTypeError("'%s' is no file of raw items" % shown_name(path))
    with open(path, "rb") as fp:
        detected = _file_format(path, fp.read(16))
    if detected is not None and not path.startswith(DEVICES):
        raise UsageTypeError(
            "'%s' is no file of raw items, but one of the format '%s', which needs no "
            "dtype%s"
            % (path, detected.name, " but those of columns" * (detected.name == "csv"))
        )
    return dtype, lengths


def decode_type(text: object) -> DType:
    """Return a type for text; raise `UsageError` if there is none of this name."""
    dtype = _named_type(text)
    if dtype.kind not in "biufcmMUS":
        raise UsageValueError("text can't become items of dtype '%s'" % dtype)
    return dtype


def _named_type(text: Any) -> DType:
    """Return a type of NumPy; raise `UsageError` if there is none of this name."""
    import numpy

    try:
        check_unit(str(text))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the name 'a' for 'S'
            dtype: DType = numpy.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise UsageValueError("'%s' is no type: %s" % (text, error)) from error
    if dtype.kind == "M" and numpy.datetime_data(dtype)[0] == "generic":
        raise UsageValueError("the type '%s' has no unit: expected M8[s], say" % text)
    return dtype


def _check_kind(content: contents.Content, wanted: Format, path: str) -> None:
    """Raise `UsageError` if a format can't hold a kind of contents."""
    if content.kind in wanted.holds or (
        contents.is_table(content) and "table" in wanted.holds
    ):
        return
    article = "an" if content.kind == "array" else "a"
    others = [f.name for f in WRITTEN.values() if content.kind in f.holds]
    raise UsageTypeError(
        "'%s': the format '%s' can't hold %s %s; %s can"
        % (path, wanted.name, article, content.kind, ", ".join(others))
    )


def _not_held(content: contents.Content, wanted: Format) -> Iterator[str]:
    """Yield what a format can't hold of the contents, in words."""
    # A .blp file of a table has no field for the attributes of columns.
    is_partial = wanted.name == "blp" and content.kind == "table"
    masks: set[str] = set()
    for name, node in contents.nodes_of(content):
        for column, mask in node.masks.items():
            masks.add(contents.inside(name, mask))
            if MASKS not in wanted.holds:
                yield MASKS % (contents.inside(name, column), mask)
        if name in masks and node.attrs.keys() == {MASK_OF}:
            continue
        is_known = wanted.attributes and not (is_partial and name)
        if node.attrs.keys() - {contents.RECORD} and not is_known:
            yield ATTRIBUTES
        if isinstance(node, contents.Rows):
            if FILL not in wanted.holds and node.has_fill_value:
                yield FILL
            if AXES not in wanted.holds and node.dims is not None:
                yield AXES
