"""The rows that ``append`` adds to an array or a table: of a file or a dataset."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy

from .. import dataset
from .._format.dtypes import DType
from .._storage.base import naming_errors
from ..constants import MAGIC, NPY_MAGIC
from ..exceptions import DamageError
from .console import STREAM, quoted_input, standard_input
from .exit_codes import Refusal, WrongUsage
from .inputs import is_dataset

if TYPE_CHECKING:
    from .._format.dtypes import Array as Items

ZIP_MAGIC = b"PK"


@contextmanager
def rows_of(args: Namespace, new_file: str, found: Any) -> Iterator[Any]:
    """Yield the rows in a file or another dataset, for the array or table `found`."""
    if is_dataset(new_file) or os.path.isdir(new_file):
        with dataset.open(new_file) as other:
            yield _rows_of_dataset(other, new_file, found)
        return
    with _opened(new_file) as fp:
        rows = _rows_in(fp, args, new_file, found)
        is_plain = isinstance(rows, numpy.ndarray) and rows.dtype.names is None
        if isinstance(found, dataset.Table) and is_plain:
            raise Refusal(
                "%s: expected items with the fields %s, found '%s'"
                % (quoted_input(new_file), ", ".join(found.names), rows.dtype)
            )
        yield rows


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


def _rows_in(fp: BinaryIO, args: Namespace, name: str, found: Any) -> Any:
    """Return the rows in a file; its first bytes decide which format it has."""
    head = fp.read(len(NPY_MAGIC))
    fp.seek(0)
    if args.npy or (head == NPY_MAGIC and not args.force):
        return _rows_of_npy(fp, name)
    if head.startswith(ZIP_MAGIC) and name.endswith(".npz"):
        return _rows_of_npz(fp, name, found)
    if head.startswith(MAGIC) and not args.force:
        from ..numpy_io import unpack_ndarray_from_file

        return unpack_ndarray_from_file(name)
    return _raw_rows(fp, name, found.dtype, found.shape[1:])


def _rows_of_dataset(other: Any, name: str, found: Any) -> Any:
    kinds = dataset.Array, dataset.Table
    if not any(isinstance(other, kind) and isinstance(found, kind) for kind in kinds):
        raise WrongUsage(
            "'%s' is a dataset of another kind than '%s'" % (name, found.path)
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
            % (quoted_input(name), size, found)
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
        raise Refusal("'%s' has '%d' arrays: an array takes one" % (name, len(arrays)))
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
            % (quoted_input(name), row, size)
        )
    return _mapped(fp, name, dtype, (size // row, *inner))
