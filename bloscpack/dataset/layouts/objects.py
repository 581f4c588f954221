"""Arrays of Python objects in bcolz and BLZ: each item is a pickle in its own chunk.

Unpickling runs code that the file names. So nothing is unpickled unless the caller says
that the files are trustworthy.
"""

from __future__ import annotations

import pickle

import numpy

from ..._reading.array_index import ArrayIndex
from ..._reading.boxes import Steps
from ...exceptions import DamageError, ObjectDtypeFound, UsageValueError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..._format.dtypes import Array

OBJECT = numpy.dtype(object)


class ObjectReader:
    """Reads items that are pickles.

    Parameters
    ----------
    shape
        The shape of the array, which has one axis.
    read
        Returns the bytes of a pickle by the number of the item.
    allowed
        Whether to unpickle.
    path
        The path of the array.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        read: Callable[[int], bytes],
        allowed: bool,
        path: str,
    ) -> None:
        self.closed = False
        self._shape = shape
        self._read = read
        self._allowed = allowed
        self._path = path

    def get(self, key: Any) -> Any:
        """Return the objects that an index selects."""
        if self.closed:
            raise UsageValueError("the array is closed")
        if not self._allowed:
            raise ObjectDtypeFound(
                "the items are Python objects, and reading them may run code that the "
                "files name; allow_pickle=True reads files that you trust",
                section="metadata",
                filename=self._path,
            )
        index = ArrayIndex(key, self._shape)
        (axis,) = index.axes
        items: Array = numpy.empty(axis.count, object)
        numbers: Array = numpy.empty(axis.count, "i8")
        numbers[axis.target(0, axis.count)] = [axis.at(i) for i in range(axis.count)]
        if isinstance(axis, Steps) and axis.reversed:
            numbers = numbers[::-1]
        for i, number in enumerate(numbers.tolist()):
            items[i] = self._load(number)
        return index.finish(items)

    def _load(self, number: int) -> object:
        content = self._read(number)
        try:
            return pickle.loads(content)
        except Exception as error:  # a pickle may raise anything
            raise DamageError(
                "expected a pickle of '%d' bytes, found another content: %s"
                % (len(content), error),
                section="chunks",
                chunk=number,
                filename=self._path,
            ) from error
