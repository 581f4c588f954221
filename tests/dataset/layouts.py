"""The layouts that tests write; a new layout gets these tests by its entry."""

import numpy as np

from bloscpack.dataset import layouts
from bloscpack.dataset.layouts.base import NewArray

LAYOUTS = tuple(name for name, known in layouts.LAYOUTS.items() if not known.instead)


def _has_shards(layout):
    new = NewArray(np.dtype("i8"), (4,), 1, shards=2)
    return layouts.array_class(layout).grid_for(new).slots > 1


# Those that may have several chunks in a file.
SHARDED = tuple(filter(_has_shards, LAYOUTS))
