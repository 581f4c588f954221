"""The contents of a file or folder that the user named, of all formats that are read.

To what `convert` reads, this adds files of plain bytes, archives of `savez`, and the
members inside of a file or a tree, whose names follow its name: ``archive.zip/a``.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy

from .. import dataset, log
from .._file.opened import OpenedFile
from .._format.dtypes import Array
from .._format.other_formats import ZIP
from .._storage.paths import is_url
from .._types import JsonObject
from ..constants import MAGIC
from ..dataset.columns import MASK_NAME, masks_of
from ..dataset.conversion import (
    DEVICES,
    FORMATS,
    HAVING_TEXT,
    RAW,
    READ_BY,
    decode_type,
    inner_content,
    options_for,
    request_fields,
    source_format,
    split_members,
)
from ..dataset.conversion.array_formats import (
    UNKNOWN_LENGTH,
    attributes_of,
    read_archive,
    read_blp,
    read_raw,
)
from ..dataset.conversion.contents import (
    NO_NAMES,
    STORED_NUMBERS,
    ByFunction,
    Content,
    Members,
    Request,
    Result,
    Rows,
    Stream,
    as_table,
    is_table,
    nodes_of,
    with_rows,
    without_group,
)
from ..dataset.description import dtype_text
from ..dataset.folder import until_unchanged
from ..dataset.items import check_truth
from ..dataset.rows import joined
from ..describe import info, ratio_of
from ..exceptions import DoesNotFit, NotANumpyArray, NotReadable
from .args import option_name, reading_options
from .console import check_exists, name_of_input, plain_name, quoted_input
from .exit_codes import WrongUsage
from .target import begins_with, is_dataset, why_no_items
from .text import facts_of_file, short

# The names of the formats of `savez`, and of files of any other format.
ARCHIVE, BYTES = "archive", "bytes"
BYTE = numpy.dtype("u1")
NO_OPTIONS: Mapping[str, Any] = {}
# The files for which options are that are not for CSV.
USES = dict.fromkeys(("dtype", "shape"), "items without a header")
USES["dtypes"] = "CSV and Parquet"
CSV_HINT = (
    ": the name of a CSV file must end with .csv; 'blpk append --delimiter , DATASET - "
    "< FILE' reads any name"
)
# The ends of the names of files that are no raw items, whatever their first bytes.
SUFFIXES = (
    *(s for f in FORMATS.values() if f.is_file and not f.begins for s in f.suffixes),
    *(*FORMATS["parquet"].suffixes, ".zip"),
)


@dataclass(eq=False)
class BytesContent(Rows):
    """Plain bytes, as an array of them."""

    @property
    def kind(self) -> str:
        """``'bytes'``."""
        return BYTES


@dataclass(eq=False)
class Opened:
    """What is in a file or folder.

    Attributes
    ----------
    name
        Its name, as programs name it.
    path
        The file or folder; standard input has one, too.
    member
        The name of the member inside of it; empty for all of it.
    format
        The name of the format.
    content
        The contents.
    used
        The names of the options that say how it was read.
    lost
        What no contents can hold, in words; complete when all rows have been read.
    """

    name: str
    path: str
    member: str
    format: str
    content: Content
    used: Collection[str] = ()
    lost: Sequence[str] = ()

    @property
    def holds_attributes(self) -> bool:
        """Whether files of this format can have attributes."""
        known = FORMATS.get(self.format)
        return self.format != BYTES and (known is None or known.attributes)

    @property
    def is_plain_file(self) -> bool:
        """Whether it is all of a local file that is no Bloscpack file."""
        is_packed = self.format in (ARCHIVE, "blp")
        return os.path.isfile(self.path) and not (self.member or is_packed)


@contextmanager
def opened(
    name: str,
    nthreads: int,
    options: Mapping[str, Any] = NO_OPTIONS,
    *,
    at_end: bool = True,
    **settings: Any,
) -> Iterator[Opened]:
    """Open what has a name; it is closed when the context ends.

    `options` are keywords of `convert` that say how it is read: those for files of
    another kind have no effect. `settings` are further fields of the `Request`. Raises
    `ReadChanged` if another program has changed a dataset in a folder meanwhile: when
    the context ends, or without `at_end` at the next read.
    """
    path, members = _split(name_of_input(name, seekable=True))
    used = options_for(path, options)
    fields = {**settings, **request_fields(path, used)}
    fields["dtypes"] = {**settings.get("dtypes", {}), **fields.get("dtypes", {})}
    request = Request("", nthreads=nthreads, **fields)
    with request.telling_change(), request.resources:
        format_name, content = _read(path, request)
        content = inner_content(content, path, members)
        texts = plain_name(name), path, "/".join(members), format_name
        with request.compared(nullcontext()) if at_end else nullcontext():
            yield Opened(*texts, content, used, request.lost)


def in_one_state(read: Callable[[], Result], *names: str) -> Result:
    """Return what a function returns, which opens what has these names.

    It is called again if a dataset changes meanwhile: a pipe can be read only once.
    """
    is_again = all(os.path.isfile(name) or os.path.isdir(name) for name in names)
    return until_unchanged(read) if is_again else read()


def check_options(options: Iterable[str], *inputs: Opened) -> None:
    """Raise `WrongUsage` for an option of which none of some files has a use."""
    for name in options:
        if not any(name in each.used for each in inputs):
            names = " and ".join(quoted_input(each.name) for each in inputs)
            verb, use = "are" if inputs[1:] else "is", USES.get(name, "CSV")
            texts = option_name(name), use, names, verb
            raise WrongUsage("--%s is for %s: %s %s none" % texts)


def _split(path: str) -> tuple[str, list[str]]:
    """Return the file or folder of a name, and the members in it that follow."""
    # In a ZIP file, the member has the name of a member.
    outer, members = split_members(path, lambda p: os.path.isdir(p) and is_dataset(p))
    if not members:
        check_exists("file", path)
    return outer, members


def _read(path: str, request: Request) -> tuple[str, Content]:
    """Return the name of the format, and the contents."""
    if request.raw is not None:
        return RAW.name, RAW.read(path, request)
    if is_url(path) and not is_dataset(path):
        try:
            return _read_packed(path, request)
        except NotReadable as error:
            if not (error.prefix or b"").startswith(ZIP):
                raise
            return ARCHIVE, read_archive(path, request)
    if begins_with(path, MAGIC):
        return _read_packed(path, request)
    read_as = source_format(path)
    return read_as.name, read_as.read(path, request)


def _read_packed(path: str, request: Request) -> tuple[str, Content]:
    try:
        return "blp", read_blp(path, request)
    except NotANumpyArray:
        parts = request.resources.enter_context(OpenedFile(path))

        def get(rows: slice) -> Array:
            data = parts.read(rows.start, rows.stop)
            return numpy.frombuffer(data, BYTE)[:: rows.step]

        shape, attrs = (parts.nbytes,), attributes_of(parts.user_metadata)
        return "blp", BytesContent(BYTE, shape, ByFunction(get), attrs)


def bytes_of(path: str, stack: ExitStack) -> BytesContent:
    """Return a local file as plain bytes, whatever its format; `stack` closes it."""
    raw = read_raw(path, Request("", raw=(BYTE, (UNKNOWN_LENGTH,)), resources=stack))
    return BytesContent(BYTE, raw.shape, raw.array)


# Descriptions


def describe(source: Opened) -> JsonObject:
    """Return what is known without reading items, in the form of `dataset.describe`."""
    path, is_whole = source.path, not source.member
    if is_whole and is_dataset(path):
        described = dataset.describe(path)
    elif is_whole and source.format == "blp":
        described = facts_of_file(info(path))
    else:
        described = _described("", source.content, source.format)
        if is_whole and os.path.isfile(path):
            cbytes = os.path.getsize(path)
            described.update(cbytes=cbytes, ratio=ratio_of(described["nbytes"], cbytes))
    return {**described, "file": source.name}


def _described(name: str, content: Content, form: str) -> JsonObject:
    members = [_described(key, node, form) for key, node in content.members.items()]
    described: JsonObject = {"name": name, "kind": content.kind, "format": form}
    described["nbytes"] = content.nbytes
    if content.attrs:
        described["attributes"] = content.attrs
    if isinstance(content, Members):
        described["members"] = members
    elif content.columns:
        described.update(rows=content.shape[0], columns=members)
    else:
        described["shape"] = list(content.shape)
        described["dtype"] = dtype_text(content.dtype)
        if content.fortran:
            described["order"] = "F"
        cbytes = getattr(content.array, "cbytes", None)
        if cbytes is not None:
            described.update(cbytes=cbytes, ratio=ratio_of(content.nbytes, cbytes))
    return described


# Parts of contents


def rows_of(source: Opened) -> Rows:
    """Return an array with an axis or more, or a table; raise `Refusal` for a group."""
    content = source.content
    if isinstance(content, Members):
        raise WrongUsage(
            "'%s' is a group: name an array or a table in it, such as '%s/%s'"
            % (source.name, source.name, next(iter(content.members), "a"))
        )
    return with_rows(content)


def selected(content: Rows, rows: slice, fields: list[str] | None) -> Rows:
    """Return some rows, and some fields or columns; only these are read."""
    if fields is not None:
        content = as_table(content)
        for name in fields:
            if name not in content.columns:
                text = "--fields: there is no '%s' among the columns %s"
                raise WrongUsage(text % (name, ", ".join(content.columns)))
        content = content.only(fields)
    return content.part(range(*rows.indices(content.shape[0])))


# New rows for a dataset


@contextmanager
def new_rows(
    args: Namespace, new_file: str, target: dataset.Array | dataset.Table
) -> Iterator[tuple[object, Sequence[str]]]:
    """Yield the rows in a file or another dataset, for the array or table `target`.

    Behind them are the properties that the dataset can't hold, in words, when it has
    all of the rows.
    """
    path = name_of_input(new_file, seekable=True)
    options, settings = reading_options(args), dict[str, object]()
    of_csv = [name for name in options if "csv" in READ_BY.get(name, ())]
    is_csv = bool(of_csv) and path.startswith(DEVICES)
    if not (args.npy or is_csv or _has_format(path, args)):
        for name in of_csv:
            texts = option_name(name), USES.get(name, "CSV"), quoted_input(new_file)
            text = "--%s is for %s, and the bytes of %s are raw items%s"
            raise WrongUsage(text % (*texts, "" if args.force else CSV_HINT))
        wrong = why_no_items(path, args)
        if target.dtype.hasobject:
            wrong = wrong or (
                "raw items are of one size, and text of any length is not" + CSV_HINT
            )
        if wrong:
            raise WrongUsage(wrong)
        shape = options.pop("shape", (UNKNOWN_LENGTH, *target.shape[1:]))
        given = options.pop("dtype", None)
        settings["raw"] = decode_type(given) if given else target.dtype, shape
    elif isinstance(target, dataset.Table):
        olds = {new: old for old, new in options.get("rename", {}).items()}
        masks = masks_of({name: target[name] for name in target.names})
        olds |= {mask: MASK_NAME % olds.get(n, n) for n, mask in masks.items()}
        settings["dtypes"] = {
            olds.get(n, n): target.dtype[n].base for n in target.names
        }
        settings["fixed_text"] = target.layout not in HAVING_TEXT
        settings["masks"] = {olds.get(n, n): olds[masks[n]] for n in masks}
    # The rows are committed before the context ends.
    with opened(path, args.nthreads, options, at_end=False, **settings) as source:
        check_options(options, source)
        yield _rows_in(source, target), source.lost


def _has_format(path: str, args: Namespace) -> bool:
    """Return whether a path is no file of raw items, or a member of a file."""
    if is_url(path) or not os.path.isfile(path):
        return True
    begins = any(f.begins and begins_with(path, f.begins) for f in FORMATS.values())
    return not args.force and (begins or path.endswith(SUFFIXES))


def _rows_in(source: Opened, target: Any) -> object:
    """Return the rows for a table, and an iterator of blocks for an array."""
    is_of_table = isinstance(target, dataset.Table)
    unnamed = NO_NAMES.get(source.format, "") if is_of_table else None
    content = without_group(source.content, unnamed=unnamed)
    targets = {n: target[n] for n in target.names} if is_of_table else {"": target}
    for name, node in nodes_of(content):
        if isinstance(node, Rows) and node.codes and name in targets:
            attrs = targets[name].attrs.asdict()
            if replace(node, attrs=attrs).codes != node.codes:
                log.notice(STORED_NUMBERS % (name or content.kind, node.codes))
    if is_of_table and is_table(content):
        table = as_table(content)
        for name, column in table.columns.items():
            if name in target.names and column.shape[1:] != target[name].shape[1:]:
                raise DoesNotFit(
                    "the column '%s': expected rows of shape %s, found rows of shape %s"
                    % (name, target[name].shape[1:], column.shape[1:])
                )
        if not isinstance(table.array, Stream):
            return table.columns
        rows = joined([*table.blocks()], table.dtype, ())
        given = {name: rows[name] for name in table.columns}
        # A table without such a column gets it with the first missing text.
        for name, mask in masks_of(table.columns).items():
            if mask not in target.names:
                given[name] = numpy.ma.array(given[name], mask=given.pop(mask))
        return given
    if not is_of_table and content.kind == "array":
        assert isinstance(content, Rows)
        check_truth(numpy.empty(0, content.dtype), target.dtype)
        return with_rows(content).blocks()
    expected = "the fields " + ", ".join(target.names) if is_of_table else "an array"
    texts = quoted_input(source.name), expected, short(describe(source))
    raise WrongUsage("%s: expected %s, found %s" % texts)
