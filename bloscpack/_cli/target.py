"""The files and folders that the user named, and what may be written.

`walk` returns what is in folders. A line for each reason reports the files in a
folder that are left out.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import defaultdict
from contextlib import contextmanager
from itertools import pairwise

from .. import log
from .._storage.cursor import Cursor
from .._storage.local import begins_with as begins_with
from .._storage.paths import is_url, local_path, shown_name
from .._storage.urls import last_part
from ..constants import EXTENSION, MAGIC, NPY_MAGIC
from ..exceptions import BloscpackError, StorageError
from .console import STREAM, check_exists, descriptor_of, standard_input, why_missing
from .exit_codes import Refusal, WrongUsage, refuse_kinds_of_folders

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from .._types import Json, JsonObject

    # Files and folders that are no inputs, by reason.
    LeftOut = defaultdict[str, list[str]]

# Names of unfinished outputs: see `disk.create_beside`.
LEFT_OVER = re.compile(r"\..*\.\d+-\d+\.tmp", re.DOTALL)
# The first bytes of a ZIP file that is not empty.
ZIP_MAGIC = b"PK\x03\x04"
# Files whose bytes are not plain data, by their first bytes, with advice for each.
NOT_PLAIN = {
    NPY_MAGIC: ".npy file: --npy appends its rows",
    MAGIC: "Bloscpack file: 'blpk cat' and a pipe append its plain bytes",
}


# Files, datasets and other folders


def is_dataset(path: str) -> bool:
    """Return whether a path is the folder of a dataset, or a ZIP file of Zarr.

    A plain folder that contains datasets is one, too, unless it contains `.blp` files
    or archives.
    """
    location = os.fsdecode(local_path(path))
    if is_url(location):
        from ..verify import is_dataset_at

        return is_dataset_at(location)
    if not os.path.isdir(location):
        outer = location  # the path of a ZIP file, and perhaps a name in it
        while outer and not os.path.exists(outer):
            outer = os.path.dirname(outer)
        return begins_with(outer, ZIP_MAGIC) and _is_zip_store(location)
    from .. import dataset

    known = dataset.find(location)
    if known is None or known[0] != "folder":
        return known is not None
    files = {name: os.path.join(location, name) for name in os.listdir(location)}
    return not any(n.endswith(EXTENSION) or _is_archive(files[n]) for n in files)


def _is_zip_store(path: str) -> bool:
    """Return whether a ZIP file has a Zarr store that `savez` has not written."""
    from .._storage.zip_store import find_zip
    from ..dataset.conversion import source_format
    from ..dataset.conversion.array_formats import has_own_files

    try:
        archive = find_zip(os.path.abspath(path))
        if archive is None or has_own_files(archive[0]):
            return False
        return bool(source_format(archive[0]).layout)
    except BloscpackError:
        return False


def has_description(path: str) -> bool:
    """Return whether a folder has the files of a dataset itself."""
    from .. import dataset

    known = dataset.find(path)
    return known is not None and known[0] != "folder"


def is_block(path: str) -> bool:
    """Return whether a folder is a block of a BigFile tree."""
    try:
        with open(os.path.join(path, "header"), "rb") as fp:
            return b"DTYPE:" in fp.read(256)
    except OSError:
        return False


# The files in folders


def packed_inside(name: str, recursive: bool, left_out: LeftOut) -> list[str]:
    """Return the compressed files in a folder; none for another name, or a dataset."""
    is_item = has_description if recursive else is_dataset
    # A URL is not tested here: that would take requests.
    if not os.path.isdir(name) or _is_item(name, is_item):
        return []
    return [*walk(name, recursive, True, EXTENSION, left_out, has_description)]


def walk(
    name: str,
    recursive: bool,
    packed: bool,
    suffix: str,
    left_out: LeftOut,
    is_item: Callable[[str], bool] | None = None,
) -> Iterator[str]:
    """Yield the files in a folder that end with the suffix, or that do not.

    `packed` says which of them; `left_out` notes the others. With `is_item`, archives
    are yielded too, and so are folders below for which it returns True, which are not
    entered. Folders that can't be read come last: as inputs they fail with the error of
    the system, after the others. So do folders of blocks of a BigFile tree, with the
    name of the verb that reads them.
    """
    refused: list[str] = []
    for folder, folders, files in os.walk(
        name, onerror=lambda error: refused.append(str(error.filename))
    ):
        folders.sort()
        if recursive and is_item is not None:
            others = [n for n in folders if not is_block(os.path.join(folder, n))]
            if len(others) < len(folders):
                refused.append(folder)
            folders[:] = others
        for below in folders[:]:
            path = os.path.join(folder, below)
            if recursive and is_item is not None and not os.path.islink(path):
                if _is_item(path, is_item):
                    folders.remove(below)
                    yield path
            elif not recursive:
                left_out["a folder below, which needs -r"].append(path)
            elif os.path.islink(path):
                left_out["a symbolic link to a folder"].append(path)
        if not recursive:
            folders.clear()
        for file in sorted(files):
            path = os.path.join(folder, file)
            reason = _reason_against(path, packed, suffix)
            if reason is None or (is_item is not None and _is_archive(path)):
                yield path
            else:
                left_out[reason].append(path)
    yield from refused


def _is_item(path: str, is_item: Callable[[str], bool]) -> bool:
    """Return whether a folder is an input, as one that can't be read is."""
    try:
        return is_item(path)
    except (BloscpackError, OSError):
        return True


def _is_archive(path: str) -> bool:
    """Return whether a file begins as an archive, or can't be read."""
    from .._format.other_formats import PREFIX_LENGTH, begins_as_archive

    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as fp:
            return begins_as_archive(fp.read(PREFIX_LENGTH))
    except OSError:
        return path.endswith(".zip")  # as an input it fails with this error


def _reason_against(path: str, packed: bool, suffix: str) -> str | None:
    """Return why a file in a folder is not an input; None if it is one."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        is_there = os.path.exists(path)
        return "no regular file" if is_there else "it %s" % why_missing(path)
    if path.endswith(suffix) != packed:
        ends = "does not end" if packed else "already ends"
        return "the name %s with '%s'" % (ends, suffix)
    if LEFT_OVER.fullmatch(os.path.basename(path)):
        return "an unfinished file"
    return None


def report(left_out: LeftOut) -> None:
    """Show a line for each reason, or for each file with ``-v``."""
    for reason, paths in left_out.items():
        shown = paths if log.enabled(log.VERBOSE) else paths[:1]
        more = len(paths) - len(shown)
        others = " and %d more" % more if more else ""
        for path in shown:
            log.notice("skipped '%s'%s: %s" % (path, others, reason))


# Sizes, and what the bytes of a file are


def size_of(name: str) -> int | None:
    """Return the size of a file in bytes; 0 for a missing file, None for a stream."""
    try:
        status = os.stat(name)
    except OSError:
        return None if name == STREAM or is_url(name) else 0
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def plain_size_of(name: str) -> int | None:
    """Return the plain bytes of a file from its header; None if it has none.

    0 if the file can't be read: its error is shown later.
    """
    from .._format.sections import read_header

    if not os.path.isfile(name):
        no_size = os.path.exists(name) or name == STREAM or is_url(name)
        return None if no_size else 0
    try:
        with open(name, "rb") as fp:
            return read_header(Cursor(fp)).nbytes
    except (BloscpackError, OSError):
        return 0


def check_extension(role: str, name: str, suffix: str = EXTENSION) -> None:
    """Raise `Refusal` unless a name has the suffix of compressed files."""
    end = last_part(name) if is_url(name) else name
    if name != STREAM and not end.endswith(suffix):
        refuse_kinds_of_folders(name)
        message = "%s '%s' does not end with '%s'" % (role, shown_name(name), suffix)
        other = other_format(name)
        raise Refusal(message + (other and "; it is " + other))


def other_format(name: str) -> str:
    """Return the name of the format of a file with its article; '' if unknown."""
    from .._format.other_formats import PREFIX_LENGTH, name_format

    if not os.path.isfile(name) or not os.access(name, os.R_OK):
        return ""
    with open(name, "rb") as fp:
        kind = name_format(fp.read(PREFIX_LENGTH), os.path.getsize(name))
    return kind or ""


def why_not_plain(new_file: str, args: Namespace) -> str:
    """Return why the bytes of a file are no plain data; '' if they are, or count."""
    for magic, advice in NOT_PLAIN.items():
        if not args.force and begins_with(new_file, magic):
            return "'%s' is a %s, --force its bytes" % (new_file, advice)
    return ""


def why_no_items(new_file: str, args: Namespace) -> str:
    """Return why the bytes of a file are no items; '' if they may be, or count."""
    if args.force:
        return ""
    kind = other_format(new_file).partition(";")[0]
    if new_file.lower().endswith(".csv"):
        kind = kind or "a CSV file"
    text = "'%s' is %s, whose bytes are no items of an array; --force appends them"
    return why_not_plain(new_file, args) or (kind and text % (new_file, kind))


# Metadata that the user named


@contextmanager
def opened_input(in_file: str) -> Iterator[BinaryIO]:
    """Open an input for reading; standard input is read from its current position."""
    if in_file == STREAM:
        yield standard_input()
        return
    with open(in_file, "rb") as fp:
        yield fp


def metadata_of_option(args: Namespace) -> Json:
    """Return the metadata in the file that ``-m`` names, or None without ``-m``."""
    if args.metadata is None:
        return None
    inputs = [getattr(args, name, None) for name in ("in_file", "new_file")]
    if args.metadata == STREAM and STREAM in inputs:
        raise WrongUsage("data and metadata can't both be standard input")
    metadata = read_metadata(args.metadata)
    if metadata is None:
        log.notice("metadata file '%s' is null: it counts as none" % args.metadata)
    return metadata


def metadata_to_set(name: str, hint: str) -> Json:
    """Return the JSON value in a file; raise `WrongUsage`, with a hint, for null."""
    metadata = read_metadata(name)
    if metadata is None:
        text = "metadata file '%s' is null, which counts as none%s"
        raise WrongUsage(text % (name, hint))
    return metadata


def read_metadata(name: str) -> Json:
    """Return the JSON value in a file or standard input; raises `Refusal`."""
    check_exists("metadata file", name)
    what = "standard input" if name == STREAM else "metadata file '%s'" % name
    with opened_input(name) as fp:
        raw = fp.read()
    try:
        return parse_json(raw.decode("utf-8-sig"), what)
    except ValueError as error:
        raise Refusal("%s is not valid JSON: %s" % (what, error)) from error


def parse_json(text: str, what: str) -> Json:
    """Return the value of JSON text; raises ValueError.

    As in 0.16, NaN and infinities are accepted, and the last value of a repeated key
    counts. A warning names the repeated key; `what` is the name of the text in it.
    """
    import json

    from ..serializers import SERIALIZERS_LOOKUP

    doubles = []

    def without_doubles(pairs: list[tuple[str, Json]]) -> JsonObject:
        members = dict(pairs)
        if len(members) < len(pairs):
            doubles.extend(sorted(key for key, _ in pairs))
        return members

    try:
        value = json.loads(text.strip(), object_pairs_hook=without_doubles)
        SERIALIZERS_LOOKUP[b"JSON"].dumps(value)  # raises if the value can't be stored
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    for key, after in pairwise(doubles):
        if key == after:
            log.notice("%s: of the values of '%s' only the last counts" % (what, key))
            break
    return value


# Outputs that the user named


def check_free(out_file: str, args: Namespace) -> None:
    """Raise `StorageError` if a file exists and no option lets it be replaced.

    A stream, such as a pipe, may exist. A symbolic link to a missing file counts as an
    existing file: another user may have made it to redirect the output.
    """
    if os.path.isdir(out_file):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), out_file)
    if may_replace(args):
        return
    from .._storage.stream import is_stream

    if os.path.exists(out_file) and not is_stream(out_file):
        raise StorageError("output file '%s' exists!" % out_file)
    if os.path.islink(out_file) and not os.path.exists(out_file):
        raise StorageError(
            "output file '%s' exists! It is a symbolic link to the missing file '%s'"
            % (out_file, os.path.realpath(out_file))
        )


def may_replace(args: Namespace) -> bool:
    """Return whether ``--force`` or ``--update`` is given."""
    return bool(args.force or getattr(args, "update", False))


def check_no_terminal(
    out_file: str, args: Namespace, what: str = "compressed bytes"
) -> None:
    """Raise `Refusal` if bytes would go to a terminal."""
    descriptor = descriptor_of(out_file)
    if descriptor is not None and os.isatty(descriptor) and not args.force:
        raise WrongUsage(
            "%s are not written to a terminal; redirect them, or use --force" % what
        )
