"""Several calls in one change see what those before have changed; others do not."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from dataset.contents import content

from bloscpack import dataset
from bloscpack.exceptions import UsageError

# What a member is replaced by: each kind, with shards where others have folders.
KINDS = {
    "point": lambda group: group.create_array("m", 5.0, mode="w"),
    "row": lambda group: group.create_array("m", np.arange(9), mode="w", **CUT),
    "plane": lambda group: group.create_array("m", np.ones((5, 3)), mode="w", **CUT),
    "sparse": lambda group: group.create_array("m", shape=9, dtype="i4", mode="w"),
    "table": lambda group: group.create_table(
        "m", {"c": np.arange(9), "d": np.arange(9)}, mode="w", chunks=2, shards=2
    ),
    "group": lambda group: make_group(group),
    "groups": lambda group: make_groups(group),
    "none": lambda group: group.__delitem__("m"),
}
CUT = {"chunks": 2, "shards": 2}
PAIRS = [pair for pair in itertools.product(KINDS, KINDS) if pair != ("none", "none")]


def make_group(group):
    inner = group.create_group("m", mode="w", attrs={"inner": 1})
    inner.create_array("c", np.arange(5), **CUT)
    inner.create_table("t/0", {"c": [1, 2]})


def make_groups(group):
    group.create_group("m", mode="w").create_group("c").create_group("0")


def united(path):
    """Return a group that commits its members."""
    group = dataset.create_group(path)
    group.create_array("m", [0])
    group.create_array("other", np.arange(4), **CUT)
    with group.change():
        pass
    return group


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_any_kind_replaces_any_kind(old, new, path):
    expected = []
    for name in "fresh", "used":
        with united("%s-%s" % (path, name)) as group:
            if name == "used":
                KINDS[old](group)
            if "m" in group or new != "none":
                KINDS[new](group)
            expected.append(content(group))
        assert expected[-1] == content(dataset.open("%s-%s" % (path, name)))
        assert dataset.verify("%s-%s" % (path, name)).ok
    assert expected[0] == expected[1]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_block_replaces_what_it_has_made(old, new, path):
    with united(path) as group:
        before = content(group)
        with group.change():
            KINDS[old](group)
            inside = content(group)
            assert before == content(dataset.open(path))
            if "m" in group or new != "none":
                KINDS[new](group)
            group["other"].append([4])
            last = content(group)
            assert before == content(dataset.open(path))
        assert last == content(group) == content(dataset.open(path))
        assert (inside != last) or old == new
    assert dataset.verify(path).ok


def change_many(group):
    """Change the same things several times; return the expected items."""
    array, table = group["other"], group["tab"]
    array.append([4, 5])
    array[1:5] = 7
    array.append([6])
    assert [0, 7, 7, 7, 7, 5, 6] == array[:].tolist()
    array.resize(2)
    array.append([8, 9, 10, 11])
    array.resize((8,))
    array[7] = 3
    array.attrs["a"] = 1
    array.attrs["a"] = array.attrs["a"] + 1
    table.append({"k": [3], "v": ["c"]})
    table[0] = (9, "z")
    table.add_column("new", [1, 2, 3])
    table.remove_column("v")
    table.rename({"new": "old"})
    table.add_column("v", [0.5, 1.5, 2.5])
    table.append({"k": [4], "old": [4], "v": [3.5]})
    table.resize(3)
    made = group.create_array("made/x", [1, 2], **CUT)
    made.append([3])
    made[0] = 0
    group["made"].attrs["b"] = 1
    return {
        "other": [0, 7, 8, 9, 10, 11, 0, 3],
        "tab": [(9, 1, 0.5), (2, 2, 1.5), (3, 3, 2.5)],
        "made": [0, 2, 3],
    }


def found(group):
    return {
        "other": group["other"][:].tolist(),
        "tab": group["tab"][:].tolist(),
        "made": group["made/x"][:].tolist(),
    }


@pytest.mark.parametrize("sync", [False, True])
def test_the_same_items_change_several_times(path, sync):
    with united(path) as group:
        group.create_table("tab", {"k": [1, 2], "v": ["a", "b"]}, chunks=2, shards=2)
    with dataset.open(path, "r+", sync=sync) as group:
        held = group["other"], group["tab"], group["tab"]["k"]
        with group.change():
            expected = change_many(group)
            assert expected == found(group)
        assert expected == found(group) == found(dataset.open(path))
        assert expected["other"] == held[0][:].tolist()
        assert expected["tab"] == held[1][:].tolist()
        assert [9, 2, 3] == held[2][:].tolist()
        assert {"a": 2} == dict(held[0].attrs)
        assert {"b": 1} == dict(group["made"].attrs)
    assert dataset.verify(path).ok


def test_nothing_is_left_of_a_block_that_fails(path):
    with united(path) as group:
        group.create_table("tab", {"k": [1, 2], "v": ["a", "b"]}, chunks=2, shards=2)
        before, held = content(group), (group["other"], group["tab"])
        made = []

        def fail():
            with group.change():
                change_many(group)
                made.extend([group["made"], group["made/x"], group["tab/old"]])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert before == content(group) == content(dataset.open(path))
        assert [0, 1, 2, 3] == held[0][:].tolist()
        assert [(1, "a"), (2, "b")] == held[1][:].tolist()
        for node in made[:2]:
            with pytest.raises(UsageError, match="closed"):
                node.attrs["a"] = 1
        held[0].append([4])
        held[1].append({"k": [3], "v": ["c"]})
        assert (5, 3) == (len(held[0]), len(held[1]))
    assert dataset.verify(path).ok


def test_another_thread_sees_the_state_before(path):
    """Also in the objects that the block uses."""
    with united(path) as group:
        array, inside, seen = group["other"], threading.Event(), []

        def read():
            inside.wait()
            seen.append((array[:].tolist(), len(array), dict(array.attrs)))
            seen.append((group["other"][:].tolist(), list(group), group.get("new")))

        thread = threading.Thread(target=read)
        thread.start()
        with group.change():
            array.append([4])
            array.attrs["a"] = 1
            new = group.create_array("new", [1])
            del group["m"]
            inside.set()
            thread.join()
            assert [0, 1, 2, 3, 4] == array[:].tolist()
        expected = [0, 1, 2, 3]
        assert [(expected, 4, {}), (expected, ["m", "other"], None)] == seen
        assert ([0, 1, 2, 3, 4], {"a": 1}) == (array[:].tolist(), dict(array.attrs))
        assert group["new"] is new


def test_an_object_of_a_member_that_was_replaced_is_closed(path):
    """What it would change is another member."""
    with united(path) as group:
        old, column = group["m"], None
        with group.change():
            new = group.create_array("m", [1, 2], mode="w")
            assert old.closed
            assert group["m"] is new
            new.append([3])
            group["m"] = {"k": [1]}
            column = group["m/k"]
            assert new.closed
        assert (True, True, False) == (old.closed, new.closed, column.closed)
        for node in old, new:
            with pytest.raises(UsageError, match="closed"):
                node.append([1])
        column[0] = 2
        assert [(2,)] == group["m"][:].tolist()


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("kind", ["array", "table", "group"])
def test_an_object_of_a_member_that_another_writer_replaces(path, kind, is_used):
    """It is closed, also if it was used in a block only."""

    def create(group, **options):
        data = {"array": [[1]], "table": [{"x": [1]}], "group": []}[kind]
        member = getattr(group, "create_" + kind)("m", *data, **options)
        if kind == "group":
            member.create_array("in", [1])
        return member

    with united(path) as group:
        with group.change():
            member = create(group, mode="w")
        if is_used:
            member.info  # noqa: B018
        with group.change():
            member.attrs["n"] = 1
        with dataset.open(path, "r+") as other:
            create(other, mode="w")
        with pytest.raises(UsageError, match="closed"):
            member.attrs["n"] = 2
        assert {} == dict(group["m"].attrs) == dict(dataset.open(path)["m"].attrs)
        group["m"].attrs["n"] = 3
    assert {"n": 3} == dict(dataset.open(path)["m"].attrs)


def test_a_name_is_free_again_in_the_block(path):
    with united(path) as group:
        with group.change():
            del group["m"]
            assert "m" not in group
            with pytest.raises(KeyError):
                group["m"]
            group.create_array("m", [1, 2])
            del group["m"]
            group.create_group("m").create_array("x", [1])
            del group["m/x"]
        assert [] == list(group["m"])
    assert [] == dataset.verify(path).findings


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
def test_a_member_of_a_block_is_closed_that_another_program_removes(path, kind):
    group = united(path)
    KINDS[kind](group)
    group.close()
    group = dataset.open_group(path, "r+")
    with group.change():
        member = group["m"]  # its files are opened again when it is used
    with dataset.open_group(path, "r+") as other:
        del other["m"]
    assert not member.closed
    assert [0, 1, 2, 3] == group["other"][:].tolist()
    group.close()
    assert member.closed
    dataset.open_group(path, "r+").close()
