"""The plain bytes that ``blpk tune`` tries settings on: of a file or of an array.

`opened_sample` gives access to the plain bytes of a file, an array file or an array of
a dataset.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from .._file.opened import open_parts
from .._file.repack_writing import array_typesizes
from .._format.automatic import TYPESIZES, Read, piece_starts, reader_of
from .._storage.paths import shown_name, without_url
from .._storage.stream import sampled
from ..constants import MAGIC, NPY_MAGIC
from ..exceptions import FormatError, StorageError, UsageError
from ..npy_io import read_header
from ..numpy_io import typesize_of
from .exit_codes import Refusal
from .inputs import is_dataset

# The verbs that apply a setting to a sample.
PLAIN, NPY, PACKED, DATASET = "compress", "compress --npy", "repack", "convert"


class Sample:
    """Chunks at regular intervals of plain data, `size` bytes in total.

    ``read(start, size)`` returns a part of the `nbytes` bytes. `typesizes` are those to
    try, and `verb` applies a setting.
    """

    def __init__(
        self, path: str, read: Read, nbytes: int, typesizes: Sequence[int], verb: str
    ) -> None:
        self.path = path
        self.read = read
        self.nbytes = nbytes
        self.typesizes = typesizes or TYPESIZES
        self.verb = verb
        self.size = 0
        if not nbytes:
            raise Refusal("'%s' is empty: nothing to try" % shown_name(path))

    def pieces(self, chunk_size: int) -> list[bytes]:
        """Return the sampled chunks, for a chunk size."""
        starts = piece_starts(self.nbytes, chunk_size, self.size)
        found = [self.read(at, min(chunk_size, self.nbytes)) for at in starts]
        if not found[0]:
            raise StorageError("'%s' became shorter while it was read" % self.path)
        return found


@contextmanager
def opened_sample(path: str, size: int, typesize: int | None) -> Iterator[Sample]:
    """Open the plain data of a file or an array; yield the sample.

    Raises `Refusal` for empty data, and for anything but a regular file or an array.
    """
    opened = _opened_dataset if is_dataset(path) else _opened_file
    with opened(path) as sample:
        sample.size = size
        if typesize is not None:
            sample.typesizes = (typesize,)
        yield sample


@contextmanager
def _opened_dataset(path: str) -> Iterator[Sample]:
    from .. import dataset

    with dataset.open(path) as array:
        if not isinstance(array, dataset.Array):
            raise Refusal(
                "'%s' is no array: name one of its arrays, as 'blpk list' shows them"
                % shown_name(path)
            )
        read = reader_of(array, max(1, array.nbytes // max(1, len(array))))
        yield Sample(path, read, array.nbytes, [typesize_of(array.dtype)], DATASET)


@contextmanager
def _opened_file(path: str) -> Iterator[Sample]:
    without_url(path, "a search on a sample")
    with open(path, "rb", buffering=0) as fp:
        status = os.fstat(fp.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refusal("'%s' is no regular file, and can't be sampled" % path)
        head = fp.read(len(NPY_MAGIC))
        fp.seek(0)
        if head.startswith(MAGIC):
            with open_parts(path) as parts:
                sizes = array_typesizes(parts.metadata)

                def unpack(start: int, size: int) -> bytes:
                    return parts.read(start, start + size)

                yield Sample(path, unpack, parts.nbytes, sizes, PACKED)
            return
        nbytes, sizes, verb = status.st_size, [], PLAIN
        if head == NPY_MAGIC:
            with suppress(FormatError, UsageError):
                array = read_header(fp)
                nbytes, sizes, verb = array.nbytes, [typesize_of(array.dtype)], NPY
        if verb == PLAIN:
            fp.seek(0)
        read, nbytes = sampled(fp, nbytes)[1]
        yield Sample(path, read, nbytes, sizes, verb)
