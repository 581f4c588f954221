"""Indexes of NumPy: a strategy of hypothesis, and some of an array of 4,096 rows."""

from __future__ import annotations

import numpy
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

OF_4096_ROWS = [
    (3, 5),
    (slice(10, 20),),
    (slice(500, 530),),
    (slice(None, None, 100), slice(None, None, 3)),
    (numpy.arange(7, 4096, 301),),
    ([4000, 5, 77, 5], [1, 2, 3, 2]),
    (slice(None), slice(4, 9)),
]


@st.composite
def indexes(draw: st.DrawFn, shape: tuple[int, ...]) -> object:
    """Return an index for an array of this shape; NumPy may refuse it.

    Its entries are integers, slices, arrays and lists of integers or booleans, new
    axes, ellipses and single booleans.
    """
    joint = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
    entries: list[object] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 5)):
        size = shape[axis]
        kind = draw(st.sampled_from(["number", "slice", "array", "list", "mask"]))
        if kind == "mask":
            ndim = draw(st.integers(0, len(shape) - axis))
            wrong = not draw(st.integers(0, 20)) and ndim
            mask = draw(hnp.arrays("?", shape[axis : axis + ndim]))
            entries.append(mask[..., :1] if wrong else mask)
            axis += ndim
            continue
        if kind == "slice":
            entries.append(draw(st.slices(size)))
        elif kind == "number":
            number = draw(st.integers(-size, size))  # perhaps out of bounds
            entries.append(draw(st.sampled_from([number, numpy.int16(number)])))
        else:
            ones = draw(st.lists(st.booleans(), min_size=3, max_size=3))
            broadcast = [1 if one else n for one, n in zip(ones, joint, strict=False)]
            some = st.integers(-size, size - 1) if size else st.just(0)
            dtype = draw(st.sampled_from(["i1", "i8", ">i4", "u2"]))
            some = some.filter(lambda i: i >= 0) if dtype == "u2" else some
            array = draw(hnp.arrays(dtype, tuple(broadcast), elements=some))
            entries.append(array.tolist() if kind == "list" else array)
        axis += 1
    extra = st.sampled_from([None, Ellipsis, Ellipsis, True, False, numpy.True_])
    for entry in draw(st.lists(extra, max_size=2)):
        entries.insert(draw(st.integers(0, len(entries))), entry)
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)
