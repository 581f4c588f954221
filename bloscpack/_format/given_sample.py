"""The choice of settings for a sample that a caller of the library gives.

A sample is read in pieces, so that the items of a large array need not be contiguous.
"""

from __future__ import annotations

from ..constants import MAX_TYPESIZE
from ..exceptions import UsageTypeError
from .automatic import choose

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._storage.protocols import Buffer
    from .automatic import Fixed, Read
    from .dtypes import Array
    from .tuning import Setting


def choose_for(
    sample: Buffer | Array, goal: str, fixed: Fixed | None = None
) -> Setting:
    """Return the best setting for data of which `sample` is a part, or all.

    The item size of an array is the type size. Raises `UsageTypeError` for a masked
    array, and unless the sample is an array or a buffer of bytes.
    """
    read, nbytes, typesize = _sample(sample)
    typesizes = (typesize,) if 1 < typesize <= MAX_TYPESIZE else ()
    return choose(read, nbytes, goal, typesizes, fixed)


def _sample(sample: Buffer | Array) -> tuple[Read, int, int]:
    """Return the function that reads a sample, its size in bytes, and its item size.

    Items that are not contiguous are copied when they are read.
    """
    if hasattr(sample, "dtype"):
        return _sample_of_array(sample)  # type: ignore[arg-type]
    try:
        view = memoryview(sample)
        if "O" not in view.format:
            itemsize = view.itemsize
            if view.nbytes and view.c_contiguous:
                view = view.cast("B")
            else:
                view = memoryview(view.tobytes())
            return lambda at, size: bytes(view[at : at + size]), len(view), itemsize
    except (TypeError, ValueError, NotImplementedError):
        pass
    raise UsageTypeError(
        "a sample must be bytes or an array of numbers or text, not '%s'"
        % type(sample).__name__
    )


def _sample_of_array(sample: Array) -> tuple[Read, int, int]:
    import numpy

    if hasattr(sample, "mask") and isinstance(sample, numpy.ma.MaskedArray):
        raise UsageTypeError(
            "a sample can't be a masked array, which can't be stored; pass .data or "
            ".filled()"
        )
    array = numpy.asarray(sample)
    if array.dtype.hasobject:
        raise UsageTypeError(
            "a sample must be bytes or an array of numbers or text, not of objects"
        )
    if array.flags.f_contiguous:
        array = array.T
    items = array.reshape(-1) if array.flags.c_contiguous else array.flat
    itemsize = array.itemsize

    def read(start: int, size: int) -> bytes:
        first, skip = divmod(start, itemsize)
        data = items[first : -(-(start + size) // itemsize)].tobytes()
        return data[skip : skip + size]

    return read, array.nbytes, itemsize
