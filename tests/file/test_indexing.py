"""The geometry of a part of an array, compared with NumPy on chunks in memory."""

from __future__ import annotations

import bisect
import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloscpack._file.indexing import (
    ArrayIndex,
    Filling,
    Outer,
    PositionList,
    Region,
    Steps,
    needed_chunks,
)


@st.composite
def axes(draw: st.DrawFn, picks: bool) -> tuple[object, Steps | PositionList]:
    """Return the index of an axis for NumPy, and the same positions for a region."""
    size = draw(st.integers(0, 6))
    if picks and size and draw(st.booleans()):
        positions = draw(st.lists(st.integers(0, size - 1), max_size=8))
        array = numpy.array(positions, "i8")
        return array, PositionList.of(array, size)
    if size and draw(st.booleans()):
        number = draw(st.integers(0, size - 1))
        return slice(number, number + 1), Steps(size, number, 1, 1)
    index = draw(st.slices(size))
    return index, Steps.of(range(size)[index], size)


def read(
    plain: bytes,
    ends: list[int],
    region: Region,
    cell: int,
    part: tuple[int, int],
    chunk_size: int = 0,
) -> tuple[bytes, list[int], int]:
    """Return the selected cells, the chunks needed, and how many need no copy."""
    result = bytearray(region.ncells * part[1])
    starts = [0, *ends[:-1]]

    def span(number: int) -> tuple[int, int]:
        return starts[number], ends[number]

    filling = Filling(region, memoryview(result), span, cell, part)

    def numbers_of(start: int, stop: int) -> range:
        first = bisect.bisect_right(starts, start) - 1
        return range(first, bisect.bisect_left(starts, stop))

    numbers = list(needed_chunks(region, cell, span, numbers_of, chunk_size))
    direct = 0
    for number in reversed(numbers):  # the order does not matter
        start, stop = span(number)
        room = filling.room(number)
        if room is not None:
            assert len(room) == stop - start
            room[:] = plain[start:stop]
            direct += 1
        chunk = memoryview(plain[start:stop]) if room is None else room
        if room is None:  # the other bytes may have any value
            first, after = filling.needs(number)
            others = bytes(byte ^ 0xFF for byte in plain[start:stop])
            used = plain[start + first : start + after]
            chunk = memoryview(others[:first] + used + others[after:])
        filling.copy(number, chunk)
    return bytes(result), numbers, direct


@given(st.data())
def test_a_region_is_what_numpy_selects(data):
    ndim = data.draw(st.integers(0, 4))
    picks = data.draw(st.integers(0, 4))  # the axis that may have any positions
    chosen = [data.draw(axes(picks=j == picks)) for j in range(ndim)]
    indexes, selected = [c[0] for c in chosen], [c[1] for c in chosen]
    shape = tuple(axis.size for axis in selected)
    cell = data.draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
    offset = data.draw(st.integers(0, cell - 1))
    part = (offset, data.draw(st.integers(1, cell - offset)))
    ncells = int(numpy.prod(shape, dtype=int))
    plain = numpy.arange(ncells * cell, dtype="u4").astype("u1").tobytes()
    size = data.draw(st.integers(0, 30))  # 0: several sizes
    cuts = set(range(size, ncells, size)) if size else set()
    if not size:
        cuts = data.draw(st.sets(st.integers(1, max(1, ncells - 1)), max_size=12))
    ends = [cell * cut for cut in sorted(c for c in cuts if c < ncells)]
    ends += [cell * ncells]

    whole = numpy.frombuffer(plain, "u1").reshape((*shape, cell))
    expected = whole[tuple(indexes)][..., part[0] : sum(part)]
    # Which chunk each byte belongs to, selected like the bytes.
    owner = numpy.searchsorted(ends, numpy.arange(len(plain)), side="right")
    owners = owner.reshape(whole.shape)[tuple(indexes)]
    needed = sorted(set(owners.ravel().tolist()))

    region = Region(selected)
    found, numbers, _ = read(plain, ends, region, cell, part, size * cell)
    assert expected.tobytes() == found
    assert needed == numbers


@pytest.mark.parametrize(
    ("index", "direct"),
    [
        (numpy.s_[:, :, :], 24),
        (numpy.s_[1:3, :, :], 12),
        (numpy.s_[::2, :, :], 12),
        (numpy.s_[2, 1:3, :], 2),  # half of them share a chunk with other items
        (numpy.s_[::-1, :, :], 24),
        (numpy.s_[:, :, ::2], 0),
    ],
)
def test_a_chunk_that_is_selected_as_a_whole_is_not_copied(index, direct):
    shape, chunk = (4, 6, 10), 10
    array = numpy.arange(240, dtype="u1").reshape(shape)
    ends = list(range(chunk, 241, chunk))
    region = Region(
        [
            Steps(n, i, 1, 1) if isinstance(i, int) else Steps.of(range(n)[i], n)
            for i, n in zip(index, shape, strict=True)
        ]
    )
    found, _, count = read(array.tobytes(), ends, region, 1, (0, 1))
    assert array[index].tobytes() == found
    assert direct == count


def test_axes_are_joined():
    assert (24,) == Region(
        [Steps(2, 0, 1, 2), Steps(3, 0, 1, 3), Steps(4, 0, 1, 4)]
    ).shape
    column = Region([Steps(2, 0, 1, 2), Steps(3, 0, 1, 3), Steps(4, 1, 1, 1)])
    assert (6,) == column.shape
    assert [1, 5, 9] == list(
        itertools.islice((column.axes[0].at(i) for i in range(6)), 3)
    )


def test_finding_the_chunks_of_a_column_takes_no_loop_over_its_rows():
    rows = 10**12
    region = Region([Steps(rows, 0, 1, rows), Steps(1000, 7, 1, 1)])
    chunk = 10**14
    numbers = needed_chunks(
        region,
        1,
        lambda n: (n * chunk, (n + 1) * chunk),
        lambda start, stop: range(start // chunk, -(-stop // chunk)),
    )
    assert list(range(10)) == numbers


# Joint axes


@pytest.mark.parametrize(
    ("key", "shapes"),
    [
        (([0, 1], [2, 0]), [(5, 6), (7,)]),
        ((slice(None), [0, 1], [2, 0]), [(5,), (6, 7)]),
        (([0, 1], slice(2), [2, 0]), [(5, 6, 7)]),
        ((0, [1, 2, 4], 3), [(5,), (6,), (7,)]),
        (numpy.ix_([0, 2], [1, 5], [0, 6, 1]), [(5,), (6,), (7,)]),
        (([3], [1, 2, 5], [[0], [4]]), [(5,), (6,), (7,)]),
        (Outer(([0, 2, 3], [1, 5, 5], slice(2))), [(5,), (6,), (7,)]),
        (numpy.ones((5, 6), "?"), [(5, 6), (7,)]),
    ],
    ids=repr,
)
def test_only_arrays_that_select_together_get_a_joint_axis(key, shapes):
    index = ArrayIndex(key, (5, 6, 7))
    found = [getattr(axis, "shape", (axis.size,)) for axis in index.axes]
    assert shapes == found


@pytest.mark.parametrize("order", ["C", "F"])
def test_joint_positions_of_a_huge_shape(order):
    shape = (2**20, 2**31, 2**11)
    rows, columns = [2**20 - 1, 5, 0], [2**31 - 1, 0, 2**30]
    (axis, inner) = ArrayIndex((rows, columns, slice(3)), shape, order).axes
    assert (2**51, shape[:2], 3) == (axis.size, axis.shape, inner.count)
    expected = [
        row * 2**31 + column if order == "C" else row + column * 2**20
        for row, column in zip(rows, columns, strict=True)
    ]
    assert sorted(expected) == [axis.at(i) for i in range(3)]


# Shapes that no memory holds: a file may state them


def positions_on(draw: st.DrawFn, size: int) -> tuple[list[int], Steps | PositionList]:
    """Return a few positions on an axis, and the same ones for a region."""
    kind = draw(st.sampled_from(["one", "slice", "picks"]))
    if kind == "picks":
        some = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4))
        return some, PositionList.of(numpy.array(some, "i8"), size)
    start = draw(st.integers(0, size - 1))
    if kind == "one":
        return [start], Steps(size, start, 1, 1)
    step = draw(st.sampled_from([1, -1, 2, 3, -7, 2**16, -(2**31), 2**40, size]))
    count = draw(st.integers(1, 4))
    index = range(size)[start::step][:count]
    return list(index), Steps.of(index, size)


@given(st.data())
def test_huge_shapes(data):
    """The selected cells of a shape of up to 2**60 cells; chunks are made as needed."""
    shape, limit = [], 2**60
    for _ in range(data.draw(st.integers(1, 4))):
        sizes = [1, 2, 3, 255, 2**16, 2**20 + 1, 2**31, 2**32 - 1, 2**40, 2**60]
        size = data.draw(st.sampled_from([n for n in sizes if n <= limit]))
        shape.append(size)
        limit //= size
    picks = data.draw(st.integers(0, len(shape) - 1))
    chosen: list[tuple[list[int], Steps | PositionList]] = []
    for j, size in enumerate(shape):
        indexes, axis = positions_on(data.draw, size)
        if isinstance(axis, PositionList) and j != picks:
            indexes, axis = indexes[:1], Steps(size, indexes[0], 1, 1)
        chosen.append((indexes, axis))
    ncells = int(numpy.prod(shape, dtype=object))
    chunk = data.draw(st.sampled_from([1, 2, 7, 64, 1000]))

    def value(position: int) -> int:
        return (position ^ position >> 8 ^ position >> 21) & 0xFF

    def span(number: int) -> tuple[int, int]:
        return number * chunk, min((number + 1) * chunk, ncells)

    expected = []
    for indexes in itertools.product(*(c[0] for c in chosen)):
        position = 0
        for index, size in zip(indexes, shape, strict=True):
            position = position * size + index
        expected.append(position)

    region = Region([c[1] for c in chosen])
    result = bytearray(region.ncells)
    filling = Filling(region, memoryview(result), span, 1, (0, 1))
    found = needed_chunks(
        region,
        1,
        span,
        lambda start, stop: range(start // chunk, -(-stop // chunk)),
        chunk,
    )
    assert sorted({position // chunk for position in expected}) == list(found)
    for number in found:
        plain = bytes(value(position) for position in range(*span(number)))
        room = filling.room(number)
        if room is not None:
            room[:] = plain
        filling.copy(number, memoryview(plain) if room is None else room)
    assert bytes(map(value, expected)) == bytes(result)
