"""Every index selects, and assigns to, what NumPy says, chunk by chunk."""

from math import prod
from random import Random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from indexes import indexes

from bloscpack._arrays.selection import ItemSelection, Outer
from bloscpack._format.grid import Grid


@st.composite
def cut_arrays(draw, min_side=0):
    """Return an array of different integers, and a grid that cuts it."""
    shape = draw(
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=min_side, max_side=7)
    )
    sizes = st.tuples(*(st.integers(1, 4) for _ in shape))
    items = numpy.arange(prod(shape)).reshape(shape)
    return items, Grid(shape, draw(sizes), draw(sizes))


def chunk_of(items, grid, number):
    """Return a chunk of an array, which is padded to its full size."""
    found = items[grid.box(number)]
    chunk = numpy.full(grid.chunk, -1)
    chunk[tuple(map(slice, found.shape))] = found
    return chunk


def read(items, grid, key):
    selection = ItemSelection(key, items.shape)
    result = numpy.full(selection.counts, -2)
    numbers = []
    for number, to, of in selection.parts(grid):
        chunk = chunk_of(items, grid, number)
        moved = chunk.transpose(selection.joint + selection.others)
        selection.in_order(result)[to] = moved[of]
        numbers.append(number)
    assert sorted(set(numbers)) == numbers
    return selection.finish(result)


def assign(items, grid, key, values):
    selection = ItemSelection(key, items.shape)
    new = selection.spread(values)
    for number, to, of in selection.parts(grid):
        chunk, box = chunk_of(items, grid, number), grid.box(number)
        chunk.transpose(selection.joint + selection.others)[of] = new[to]
        items[box] = chunk[tuple(map(slice, items[box].shape))]


def check(items, grid, key, values):
    """Compare a read and an assignment with those of NumPy."""
    try:
        expected = items[key]
    except (IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            ItemSelection(key, items.shape)
        return
    except DeprecationWarning:  # an older NumPy ignores the index if there are no items
        with pytest.raises((IndexError, DeprecationWarning)):
            ItemSelection(key, items.shape)
        return
    found = read(items, grid, key)
    assert (type(expected), numpy.shape(expected)) == (type(found), numpy.shape(found))
    numpy.testing.assert_array_equal(expected, found)
    new = values[: expected.size].reshape(numpy.shape(expected))
    assigned, by_numpy = items.copy(), items.copy()
    by_numpy[key] = new
    assign(assigned, grid, key, new)
    numpy.testing.assert_array_equal(by_numpy, assigned)


VALUES = -3 - numpy.arange(7**5)


@given(data=st.data(), cut=cut_arrays())
def test_indexes_of_numpy(data, cut):
    items, grid = cut
    check(items, grid, data.draw(indexes(items.shape)), VALUES)


def random_index(random, shape):
    """Return an index that NumPy may refuse, faster than a strategy draws one."""
    joint = random.choice([(), (3,), (2, 3), (1,), (4, 1)])
    entries, axis = [], 0
    while axis < len(shape) and random.random() < 0.9:
        n = shape[axis]
        kind = random.choice(
            ["number", "slice", "slice", "array", "mask", "new", "all"]
        )
        if kind == "number":
            entries.append(random.randint(-n, n))  # perhaps out of bounds
        elif kind == "slice":
            ends = [random.choice([None, random.randint(-n - 1, n + 1)]) for _ in "ab"]
            entries.append(slice(*ends, random.choice([None, 1, 2, 3, -1, -2, -5])))
        elif kind == "array":
            count = prod(random.choice([joint, joint[-1:], (1,)]))
            numbers = [random.randrange(-n, n) for _ in range(count if n else 0)]
            array = numpy.array(numbers, int)
            entries.append(
                array.reshape(joint) if count == prod(joint) and n else array
            )
        elif kind == "mask":
            ndim = random.randint(0, len(shape) - axis)
            count = prod(shape[axis : axis + ndim])
            mask = numpy.array([random.random() < 0.4 for _ in range(count)], bool)
            entries.append(mask.reshape(shape[axis : axis + ndim]))
            axis += ndim - 1
        elif kind == "new":
            entries.append(None)
            axis -= 1
        elif Ellipsis not in [e for e in entries if e is Ellipsis]:
            entries.append(Ellipsis)
            axis += random.randint(0, len(shape) - axis) - 1
        axis += 1
    return tuple(entries)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_million_indexes_of_numpy(seed):
    random = Random(seed)
    for _ in range(100_000):
        shape = tuple(
            random.choice([0, 1, 2, 3, 5, 7]) for _ in range(random.randint(0, 4))
        )
        sizes = [tuple(random.randint(1, 4) for _ in shape) for _ in "ab"]
        items = numpy.arange(prod(shape)).reshape(shape)
        check(items, Grid(shape, *sizes), random_index(random, shape), VALUES)


@given(data=st.data(), cut=cut_arrays(min_side=1))
def test_each_entry_of_an_outer_index_selects_by_itself(data, cut):
    items, grid = cut
    expected, key = items, []
    for axis, n in enumerate(items.shape):
        positions = st.lists(st.integers(-n, n - 1), max_size=5)
        entry = data.draw(st.one_of(positions, st.slices(n), hnp.arrays("?", (n,))))
        key.append(entry)
        found = entry if not isinstance(entry, list) else numpy.array(entry, int)
        expected = expected[(slice(None),) * axis + (found,)]
    numpy.testing.assert_array_equal(expected, read(items, grid, Outer(key)))


def test_arrays_that_share_no_axis_of_the_result_are_not_joint():
    rows, columns = numpy.ix_([4, 1, 2], [3, 0])
    assert [] == ItemSelection((rows, columns), (5, 5)).joint
    assert [0, 1] == ItemSelection(([4, 1], [3, 0]), (5, 5)).joint


def test_equally_spaced_positions_are_a_range():
    assert [range(2, 9, 3)] == ItemSelection([8, 5, 2], (10,)).axes


def test_points_in_a_grid_with_more_chunks_than_an_integer_of_numpy_counts():
    shape = 2**60, 2, 2
    grid = Grid(shape, (1, 1, 1), (1, 64, 64))
    rows, zeros = [2**59, 0, 2**58], [0, 0, 0]
    parts = ItemSelection((rows, zeros, zeros), shape).parts(grid)
    expected = [grid.number((row, 0, 0)) for row in (0, 2**58, 2**59)]
    assert expected == [number for number, _, _ in parts]
    assert [1, 2, 0] == [int(numpy.arange(3)[to][0]) for _, (to,), _ in parts]


@pytest.mark.parametrize(
    "key", [Outer(([5, 1], [3, 2])), Outer((slice(3), [1])), (slice(3), [1, 0])]
)
def test_a_few_items_of_a_huge_array(key):
    """NumPy checks an index with arrays by a look at each item."""
    selection = ItemSelection(key, (2**40, 2**10))
    assert 6 >= prod(selection.counts)
