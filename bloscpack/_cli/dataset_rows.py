"""What ``cat``, ``append`` and ``metadata`` do with a dataset."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import numpy

from .. import dataset
from .._storage.base import naming_errors
from .._storage.urls import shown_name
from ..constants import MAGIC, NPY_MAGIC
from ..exceptions import DamageError, UsageError
from .dataset_folders import is_dataset
from .exit_codes import EXIT_COULD_NOT, EXIT_USAGE, Refusal
from .stdio import STREAM, quoted_input, standard_input

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator
    from typing import Any, BinaryIO

    from .._format.dtypes import Array as Items
    from .._format.dtypes import DType
    from ..serializers import Json, JsonObject

# About the number of plain bytes that ``cat`` reads at a time.
READ_NBYTES = 16 * 2**20
ZIP_MAGIC = b"PK"


# cat


def cat(
    path: str, bytes_: slice, rows: slice | None, deliver: Callable[[bytes], None]
) -> None:
    """Pass the plain bytes of rows to `deliver`, of a table as structured items."""
    with dataset.open(path) as found:
        if isinstance(found, dataset.Group):
            raise Refusal(
                "'%s' is a group: name an array or a table in it%s"
                % (shown_name(path), _members(found)),
                EXIT_USAGE,
            )
        row = found.dtype.itemsize
        for length in found.shape[1:]:
            row *= length
        if rows is None:
            _cat_bytes(found, row, range(*bytes_.indices(row * len(found))), deliver)
            return
        for part in _parts(range(*rows.indices(len(found))), row):
            deliver(_plain(found[part.start : part.stop : part.step]))


def _cat_bytes(
    found: Any, row: int, span: range, deliver: Callable[[bytes], None]
) -> None:
    if not span:
        return
    rows = range(span.start // row, -(-span.stop // row))
    for part in _parts(rows, row):
        plain = _plain(found[part.start : part.stop])
        start = max(0, span.start - part.start * row)
        deliver(plain[start : span.stop - part.start * row])


def _plain(items: Items) -> bytes:
    """Return the bytes of items; raise `UsageError` for Python objects."""
    if items.dtype.hasobject:
        raise UsageError("Python objects have no plain bytes")
    return items.tobytes()


def _parts(rows: range, row: int) -> Iterator[range]:
    """Yield ranges of rows that are read at a time."""
    step = max(1, READ_NBYTES // max(1, row * rows.step))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def _members(group: dataset.Group) -> str:
    names = list(group)[:5] if group._layout.folder.lists else []
    return ", such as '%s'" % names[0] if names else ""


# append


def append(args: Namespace, path: str, new_file: str) -> None:
    """Append the rows in a file, or in another dataset, in one step."""
    with dataset.open(path, "r+", sync=args.sync is not False) as found:
        if isinstance(found, dataset.Group):
            raise Refusal(
                "'%s' is a group: name an array or a table in it%s"
                % (shown_name(path), _members(found)),
                EXIT_USAGE,
            )
        with _rows_of(args, new_file, found) as rows:
            _check_fields(found, rows, new_file)
            found.append(rows)


def _check_fields(found: Any, rows: Any, name: str) -> None:
    """Raise `Refusal` unless an array for a table has fields: it may be anything."""
    is_plain = isinstance(rows, numpy.ndarray) and rows.dtype.names is None
    if isinstance(found, dataset.Table) and is_plain:
        raise Refusal(
            "%s: expected items with the fields %s, found '%s'"
            % (quoted_input(name), ", ".join(found.names), rows.dtype),
            EXIT_COULD_NOT,
        )


@contextmanager
def _rows_of(args: Namespace, new_file: str, found: Any) -> Iterator[Any]:
    """Yield rows for an array or a table."""
    if is_dataset(new_file) or os.path.isdir(new_file):
        with dataset.open(new_file) as other:
            yield _rows_of_dataset(other, new_file, found)
        return
    with _opened(new_file) as fp:
        head = fp.read(len(NPY_MAGIC))
        fp.seek(0)
        if args.npy or (head == NPY_MAGIC and not args.force):
            yield _rows_of_npy(fp, new_file)
        elif head.startswith(ZIP_MAGIC) and new_file.endswith(".npz"):
            yield _rows_of_npz(fp, new_file, found)
        elif head.startswith(MAGIC) and not args.force:
            from ..numpy_io import unpack_ndarray_from_file

            yield unpack_ndarray_from_file(new_file)
        else:
            yield _raw_rows(fp, new_file, found.dtype, found.shape[1:])


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open a file that can seek; standard input is copied to a temporary one."""
    if name != STREAM:
        with open(name, "rb") as fp:
            yield fp
        return
    import tempfile

    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(standard_input(), spool)
        spool.flush()
        spool.seek(0)
        yield spool


def _rows_of_dataset(other: Any, name: str, found: Any) -> Any:
    kinds = dataset.Array, dataset.Table
    if not any(isinstance(other, kind) and isinstance(found, kind) for kind in kinds):
        raise Refusal(
            "'%s' is a dataset of another kind than '%s'" % (name, found.path),
            EXIT_USAGE,
        )
    return dict(other.columns) if isinstance(other, dataset.Table) else other


def _rows_of_npy(fp: BinaryIO, name: str) -> Items:
    """Return the rows of a .npy file, which are read when they are needed."""
    from ..npy_io import read_header

    with naming_errors(name):
        array = read_header(fp)
    order: Any = "F" if array.flags.fnc else "C"
    return _mapped(fp, name, array.dtype, array.shape, fp.tell(), order)


def _mapped(
    fp: BinaryIO,
    name: str,
    dtype: DType,
    shape: tuple[int, ...],
    offset: int = 0,
    order: Any = "C",
) -> Items:
    """Return the items in a file as an array that the system reads when needed."""
    size = dtype.itemsize
    for length in shape:
        size *= length
    found = os.fstat(fp.fileno()).st_size - offset
    if found != size:
        raise Refusal(
            "%s: expected '%d' bytes of items, found '%d'"
            % (quoted_input(name), size, found),
            EXIT_COULD_NOT,
        )
    if not size:
        return numpy.empty(shape, dtype)
    return numpy.memmap(fp, dtype, "r", offset, shape, order)


def _array_in(content: bytes, name: str) -> Items:
    """Return the array in the content of a .npy file."""
    import io

    from ..npy_io import read_header

    fp = io.BytesIO(content)
    with naming_errors(name):
        array = read_header(fp)
    items = content[fp.tell() :]
    if len(items) != array.nbytes:
        raise DamageError(
            "expected '%d' bytes of items, found '%d'" % (array.nbytes, len(items)),
            section="chunks",
            filename=name,
        )
    flat: Items = numpy.frombuffer(items, array.dtype)
    return flat.reshape(array.shape, order="F" if array.flags.fnc else "C")


def _rows_of_npz(fp: BinaryIO, name: str, found: Any) -> Any:
    from ..dataset.conversion.zip_files import ZipErrors, open_zip

    arrays = {}
    with open_zip(fp, name) as archive:
        for member in archive.namelist():
            place = "%s/%s" % (name, member)
            with ZipErrors(place):
                content = archive.read(member)
            arrays[member.removesuffix(".npy")] = _array_in(content, place)
    if isinstance(found, dataset.Table):
        return arrays
    if len(arrays) != 1:
        raise Refusal(
            "'%s' has '%d' arrays: an array takes one" % (name, len(arrays)),
            EXIT_COULD_NOT,
        )
    return next(iter(arrays.values()))


def _raw_rows(fp: BinaryIO, name: str, dtype: DType, inner: tuple[int, ...]) -> Items:
    """Return raw bytes as rows, which are read when they are needed."""
    row = dtype.itemsize
    for length in inner:
        row *= length
    size = os.fstat(fp.fileno()).st_size
    if not row or size % row:
        raise Refusal(
            "%s: expected a multiple of the '%d' bytes of a row, found '%d' bytes"
            % (quoted_input(name), row, size),
            EXIT_COULD_NOT,
        )
    return _mapped(fp, name, dtype, (size // row, *inner))


# metadata


def attributes(path: str) -> JsonObject:
    """Return the attributes of a dataset."""
    with dataset.open(path) as found:
        return found.attrs.asdict()


def change_attributes(path: str, change: Callable[[Json], Json], sync: bool) -> None:
    """Replace the attributes by what `change` returns for them, in one step."""
    with dataset.open(path, "r+", sync=sync) as found:
        new = change(found.attrs.asdict())
        if not isinstance(new, dict):
            raise Refusal(
                "the attributes of '%s' must be a JSON object" % path, EXIT_COULD_NOT
            )
        found.attrs.put(new)
