"""Arrays as metadata: dtype, shape and order, in the spelling of every release.

Values to objects and back, no files (docs/format.rst, Arrays). What comes from a
file is checked before it is believed, and nothing but literals is evaluated.
"""

from __future__ import annotations

import math
import sys

import numpy

from ..constants import MAX_NDIM
from ..exceptions import DoesNotFit, FormatError, NotANumpyArray
from ..serializers import CONTAINER, is_array
from .dtypes import decode_dtype, encode_dtype, shown

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    Array = NDArray[Any]
    DType = numpy.dtype[Any]

# Maximum number of dimensions in the installed NumPy; NumPy 2 does not publish it.
NUMPY_NDIM: int = getattr(numpy, "MAXDIMS", MAX_NDIM)
# Maximum size in bytes of an array in memory.
MAX_NBYTES = sys.maxsize


def describe(ndarray: Array) -> dict[str, Any]:
    """Return the metadata of an array."""
    fortran = ndarray.flags.f_contiguous and not ndarray.flags.c_contiguous
    return {
        "dtype": encode_dtype(ndarray.dtype),
        "shape": ndarray.shape,
        "order": "F" if fortran else "C",
        "container": CONTAINER,
    }


class Description:
    """The metadata of an array, checked; ``nbytes`` is what shape and dtype need."""

    def __init__(self, metadata: Any) -> None:
        if not is_array(metadata):
            raise NotANumpyArray(
                "expected the metadata of an array, found %s" % shown(metadata),
                section="metadata",
            )
        if "dtype" not in metadata or "shape" not in metadata:
            raise FormatError(
                "expected 'dtype' and 'shape' in the metadata of an array, found %s"
                % shown(sorted(metadata)),
                section="metadata",
            )
        self.dtype = decode_dtype(metadata["dtype"])
        self.shape = self._decode_shape(metadata["shape"])
        self.order = metadata.get("order", "C")
        if self.order not in ("C", "F"):
            raise FormatError(
                "expected the order 'C' or 'F' in the metadata, found %s"
                % shown(self.order),
                section="metadata",
            )
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self._check_possible()

    @staticmethod
    def _decode_shape(stored: Any) -> tuple[int, ...]:
        shape = [stored] if type(stored) is int else stored
        if (
            not isinstance(shape, (list, tuple))
            or len(shape) > NUMPY_NDIM
            or any(type(n) is not int or not 0 <= n <= MAX_NBYTES for n in shape)
        ):
            raise FormatError(
                "expected a shape in the metadata, found %s" % shown(stored),
                section="metadata",
            )
        return tuple(shape)

    def _check_possible(self) -> None:
        """Raise `FormatError` for what NumPy refuses, without asking it for memory."""
        # Also an array without items is refused if its other axes would be too long.
        if math.prod(n or 1 for n in self.shape) * self.dtype.itemsize <= MAX_NBYTES:
            return
        why = "is larger than any memory"
        if not self.nbytes:
            why = "can't be made: NumPy has no axes of that length, even without items"
        # The size is not shown: Python refuses to write numbers of thousands of digits.
        raise FormatError(
            "an array of shape %.200s and dtype '%.200s' %s"
            % (self.shape, self.dtype, why),
            section="metadata",
        )

    def check_nbytes(self, nbytes: int) -> None:
        """Raise `FormatError` unless the chunks hold `nbytes`, as the array does."""
        if nbytes != self.nbytes:
            raise FormatError(
                "an array of shape %s and dtype '%s' has '%d' bytes, but the chunks "
                "hold '%d'" % (self.shape, self.dtype, self.nbytes, nbytes),
                section="metadata",
            )

    def allocate(self) -> Array:
        """Return a new array; its items have any value."""
        try:
            # Not `numpy.empty`, which makes texts of no bytes one character long.
            return numpy.ndarray(self.shape, dtype=self.dtype, order=self.order)
        except (MemoryError, ValueError, OverflowError) as error:
            raise FormatError(
                "an array of shape %s and dtype '%s' can't be made: %s"
                % (self.shape, self.dtype, error),
                section="metadata",
            ) from error


def appended_metadata(
    metadata: Any, nbytes: int, new_size: int, replacement: Any = None
) -> Any:
    """Return the metadata of an array file of `nbytes` after `new_size` were appended.

    The array grows along its first axis. `replacement`, if not None, are metadata
    that the caller wants instead. Raises `UsageError` if the new bytes are no
    whole rows, and `FormatError` if shape and data disagree.
    """
    if replacement is not None:
        if not is_array(replacement):
            raise DoesNotFit(
                "the new metadata do not describe the array that the file holds: they "
                "need its dtype, shape, order and container"
            )
        try:
            Description(replacement).check_nbytes(nbytes + new_size)
        except FormatError as error:
            raise DoesNotFit(error.message) from error
        return replacement
    old = Description(metadata)
    old.check_nbytes(nbytes)
    if new_size == 0:
        return metadata
    row = math.prod(old.shape[1:]) * old.dtype.itemsize
    if not old.shape or (old.order == "F" and len(old.shape) > 1):
        raise DoesNotFit(
            "an array of shape %s and order '%s' can't grow along its first axis"
            % (old.shape, old.order)
        )
    if row == 0 or new_size % row:
        raise DoesNotFit(
            "'%d' bytes are to be appended to an array of shape %s and dtype '%s', "
            "whose rows have '%d' bytes" % (new_size, old.shape, old.dtype, row)
        )
    return {**metadata, "shape": [old.shape[0] + new_size // row, *old.shape[1:]]}
