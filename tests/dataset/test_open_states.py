"""What each call does in each state of an open dataset: the table `RULES`, each cell.

Version `n` of a dataset has `n` rows more than `OLD`, and `n` as its attribute; with
``shared=True``, it has `n` as its first item. A case brings a dataset into states, one
upon the other, and knows which version is there for each outcome of a call.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
import warnings

import numpy as np
import pytest
from dataset.inside import (
    DRAFT,
    FRESH,
    JOINS,
    MADE,
    NEVER,
    NOW,
    OPENED,
    RULES,
    SAME,
    TWIN,
    WAITS,
    WRITES,
    FolderChange,
    Refused,
    State,
    states_of,
)
from dataset.layouts import LAYOUTS

from bloscpack import dataset
from bloscpack.exceptions import BloscpackError, StorageError, UsageError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
OLD = list(range(8))
READER, ALONE, TURNS, SHARDS, BLOCK, ROWS, CHILD, CLOSED = State


def create(where, kind, layout, **options):
    """Create an array or a table of `OLD`, or a group, at a path or in a group."""
    name = () if isinstance(where, str) else ("m",)
    make = getattr(dataset if name == () else where, "create_" + kind)
    if kind == "group":
        return make(*(name or [where]), attrs={"n": 0})
    data = {"array": np.array(OLD), "table": {"x": np.array(OLD)}}[kind]
    return make(
        *(name or [where]), data, layout=layout, attrs={"n": 0}, chunks=4, **options
    )


def rows_of(kind, values):
    return {"x": values} if kind == "table" else values


def change(node, kind):
    """Make the next version."""
    if kind == "group":
        node.refresh()
        node.attrs["n"] += 1
        return
    node.append(rows_of(kind, [50]))
    node.attrs["n"] += 1


def items(node):
    return (node[...] if isinstance(node, dataset.Array) else node[:]["x"]).tolist()


class Late:
    """A row that is not in memory: `produce` is called when it is read."""

    dtype, shape = np.dtype("i8"), (1,)

    def __init__(self, produce):
        self._produce = produce

    def __getitem__(self, key):
        self._produce()
        return np.array([50])


class Case:
    """An open dataset, its states, and the version for each outcome.

    Attributes
    ----------
    path
        What another program opens.
    member
        The name of the dataset there; empty if it is the dataset itself.
    tree
        The path that has the writer.
    within
        Calls a function in these states.
    """

    def __init__(self, kind, node, found, versions=(), path="", within=None):
        self.kind, self.node, self.found = kind, node, found
        self.versions = dict(versions)
        self.tree = path or node.path
        self.member = os.path.relpath(node.path, self.tree) if path else ""
        self.within = within or (lambda work: work())
        self.owner, self.later = os.getpid(), []

    def rule(self, call):
        """Return what the table says: the rule of the last state that has one."""
        return [r for s in self.found if (r := RULES[call][s]) is not SAME][-1]

    def fresh(self):
        """Return what another program opens for reading."""
        opened = dataset.open(self.tree)
        if self.kind == "column":
            return opened["x"]
        return opened[self.member] if self.member not in ("", ".") else opened

    def error(self, rule):
        values = {"path": self.node.path, "tree": self.tree, "why": ""}
        return rule.text % {**values, "owner": self.owner, "here": os.getpid()}


# The calls


def changes(case):
    node, kind = case.node, case.kind
    yield lambda: node.attrs.update(made=1)
    if kind == "group":
        yield lambda: node.create_group("made")
        yield lambda: node.require_group("made/too")
        yield lambda: node.__delitem__("made")
        return
    if kind == "column":
        return
    yield lambda: node.append(rows_of(kind, [51]))
    yield lambda: node.resize(9)
    if kind == "table":
        yield lambda: node.add_column("y", range(9))
        yield lambda: node.rename({"y": "z"})
        yield lambda: node.remove_column("z")


def refused(case, rule, call):
    """Make a call, and compare its error."""
    with pytest.raises(BloscpackError) as caught:
        call()
    assert type(caught.value) is rule.kind
    assert case.error(rule) == str(caught.value)


def check(case, call):
    """Make a call in a state, and compare what it does with the table."""
    node, kind, rule = case.node, case.kind, case.rule(call)
    found = states_of(node._writer, node.closed)
    assert case.found == found, "the dataset is in other states"
    assert rule is not NEVER, "the table says that this can't be"
    calls = {
        "read": [lambda: list(node) if kind == "group" else items(node)],
        "change": list(changes(case)),
        "assign": [lambda: node.__setitem__(0, rows_of(kind, [7]))],
        "begin": [lambda: node.change().__enter__()],
        "leave": [node.close],
        "tasks": [lambda: node._ask("tasks")],  # `to_dask` needs another package
    }.get(call, [getattr(node, call, None)])
    if isinstance(rule, Refused):
        for each in calls:
            refused(case, rule, each)
        return
    if call == "read":
        if kind != "group":
            found = items(node)
            assert case.versions[rule] == len(found) - 8 + found[0]
        else:
            list(node)
    elif call == "attrs":
        assert case.versions[rule] == node.attrs["n"]
    elif call == "info":
        rows = node.info.get("shape", node.info.get("rows", [8]))
        rows = rows if isinstance(rows, int) else rows[0]
        assert (
            kind == "group"
            or SHARDS in case.found
            or CLOSED in case.found
            or (case.versions[rule] == rows - 8)
        )
    elif call == "pickle":
        text, is_twin = pickle.dumps(node), rule is TWIN and kind != "group"
        case.later.append(lambda: (pickle.loads(text)._writer is not None) == is_twin)
        assert BLOCK in case.found or case.later[-1]()
    elif call == "refresh":
        node.refresh()
        if kind != "group":
            found = items(node)
            assert case.versions[rule] == len(found) - 8 + found[0]
        assert SHARDS in case.found or case.versions[rule] == node.attrs["n"]
    elif call in ("change", "assign"):
        for each in calls:
            each()
        made = [lambda: "made" in case.fresh().attrs]
        if call == "assign":
            made = [lambda: items(case.fresh())[0] == 7]
        assert [rule is not JOINS] == [each() for each in made]
        case.later += made
    elif call == "begin":
        with node.change():
            node.attrs["made"] = 1
            assert "made" not in case.fresh().attrs
        assert "made" in case.fresh().attrs
    elif call == "flush":
        node.flush()
    elif call == "tasks":
        assert rule is node._ask("tasks")
    elif call in ("close", "leave"):
        node.close()
        assert node.closed
        if call == "close" and rule is WRITES and SHARDS not in case.found:
            dataset.open(case.tree, "r+").close()


# The cases: each yields a dataset in its states


def reader(kind, layout, path, **options):
    create(path, kind, layout, **options).close()
    node = dataset.open(path)
    dict(node.attrs)
    with dataset.open(path, "r+") as other:
        change(other, kind)
    yield Case(kind, node, [READER], {OPENED: 0, FRESH: 1})


def alone(kind, layout, path, **options):
    with create(path, kind, layout, **options) as node:
        change(node, kind)
        with pytest.raises(StorageError, match="another writer"):
            dataset.open(path, "r+")
        yield Case(kind, node, [ALONE], {NOW: 1})


def group_of(path, kind, layout, **options):
    """Return a group that commits its members, and the member that is used."""
    group = dataset.create_group(path, attrs={"n": 0})
    with group.change():
        pass
    return group, group if kind == "group" else create(group, kind, layout, **options)


def member(kind, layout, path, **options):
    """A member of a group, or the group itself."""
    group, node = group_of(path, kind, layout, **options)
    with group:
        dict(node.attrs)
        with dataset.open(path, "r+") as other:
            change(other if kind == "group" else other["m"], kind)
        yield Case(kind, node, [TURNS], {OPENED: 0, FRESH: 1}, path)


def inner_group(kind, layout, path, **options):
    with group_of(path, "array", layout)[0] as group:
        node = group.create_group("in", attrs={"n": 0})
        dict(node.attrs)
        with dataset.open(path, "r+") as other:
            other["in"].attrs["n"] = 1
        yield Case(kind, node, [TURNS], {OPENED: 0, FRESH: 1}, path)


def column(kind, layout, path, **options):
    with create(path, "table", layout) as table:
        table["x"].attrs["n"] = 0
        yield Case("column", table["x"], [ALONE], {NOW: 0}, path)


def shards(kind, layout, path, **options):
    create(path, kind, layout, **options).close()
    node, other = (dataset.open(path, "r+", shared=True) for _ in range(2))
    with node, other:
        dict(node.attrs)
        other[0] = 1
        yield Case(kind, node, [SHARDS], {OPENED: 0, FRESH: 1})


def shared_group(kind, layout, path, **options):
    create(path, kind, layout).close()
    with dataset.open(path, "r+", shared=True) as node:
        yield Case(kind, node, [SHARDS], {OPENED: 0, FRESH: 0})


def interrupt(call, *, is_behind=True):
    """Make a change, which is interrupted before or behind its commit point."""

    def stop(changed):
        changed.is_committing = True
        if is_behind:
            commit(changed)
        raise KeyboardInterrupt

    commit = FolderChange.commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderChange, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            call()


def interrupted(kind, layout, path, **options):
    """A commit was interrupted, and completed at once."""
    with create(path, kind, layout, **options) as node:
        dict(node.attrs)
        if not options:
            interrupt(lambda: node.append(rows_of(kind, [1])))
        interrupt(lambda: node.attrs.update(n=1))
        yield Case(kind, node, [ALONE], {OPENED: 1, NOW: 1})


def block(kind, layout, path, of=member):
    """A block of `change`; in it, the case is the draft."""
    for case in of(kind, layout, path):
        group = case.node
        while group._around is not None:
            group = group._around

        def within(work, case=case, group=group):
            with group.change():
                change(case.node, kind)
                work()

        dict(case.node.attrs)
        case.node.refresh()
        yield Case(kind, case.node, [TURNS, BLOCK], {DRAFT: 2}, path, within)


def inner_block(kind, layout, path, **options):
    yield from block(kind, layout, path, inner_group)


def rows(kind, layout, path, of=alone):
    """Rows of a change are produced, upon the states of another case."""
    for case in of(kind, layout, path):

        def produce(work, case=case):
            if kind == "group":
                case.node.create_array("late", Late(work))
            else:
                case.node.append(rows_of(kind, Late(work)))

        def within(work, case=case):
            case.within(lambda: produce(work))

        found, versions = [*case.found, ROWS], dict(case.versions)
        if TURNS in found and BLOCK not in found:
            versions[OPENED] = versions[DRAFT] = versions[FRESH]  # it is taken over
        if kind == "group":  # a new member is a block of its own
            found = [TURNS, BLOCK, ROWS]
        path = case.tree if case.member else ""
        yield Case(kind, case.node, found, versions, path, within)


def rows_of_member(kind, layout, path, **options):
    yield from rows(kind, layout, path, member)


def rows_in_block(kind, layout, path, **options):
    yield from rows(kind, layout, path, block)


def in_child(work, beside):
    """Call `work` in a child process, after `beside` in the parent."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forks in a process with threads
        child = os.fork()
    if not child:
        signal.alarm(20)  # ends a child that waits for ever
        try:
            os.read(reader, 1)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    beside()
    os.write(writer, b"1")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(reader)
    os.close(writer)
    assert status == 0, "the child process has failed"


def child(kind, layout, path, of=alone):
    """A child process; its parent makes a change after the fork."""
    for case in of(kind, layout, path):
        dict(case.node.attrs)
        is_shared, is_block = SHARDS in case.found, BLOCK in case.found

        def beside(node=case.node, is_shared=is_shared, is_block=is_block):
            if is_shared:
                node[0] = 2
            elif not is_block:  # the files of a draft may go
                change(node, kind)

        def within(work, case=case, beside=beside):
            case.within(lambda: in_child(work, beside))

        now = {OPENED: case.versions.get(NOW, 0), FRESH: 2}
        found = [SHARDS if is_shared else READER]
        if is_block:
            found, now = [READER, BLOCK], case.versions
        path = case.tree if case.member else ""
        yield Case(kind, case.node, [*found, CHILD], now, path, within)


def closed(kind, layout, path, of=alone):
    for case in of(kind, layout, path):
        dict(case.node.attrs)
        is_root = case.member in ("", ".") and READER not in case.found
        found = [CLOSED, CLOSED] if is_root else [*case.found, CLOSED]
        path = case.tree if case.member else ""
        opened = case.versions.get(NOW, case.versions.get(DRAFT, 0))
        versions = {OPENED: opened, **case.versions}

        def within(work, case=case):
            def close_and_work():
                case.node.close()
                work()

            case.within(close_and_work)

        yield Case(kind, case.node, found, versions, path, within)


def upon(state, of):
    """Return the cases of a state upon those of another one."""

    def made(kind, layout, path, **options):
        return state(kind, layout, path, lambda *place: of(*place, **options))

    made.__name__ = "%s, %s" % (of.__name__, state.__name__)
    return made


ITEMS = [(kind, layout) for kind in ("array", "table") for layout in LAYOUTS]
IN_ZARR = [("array", "zarr"), ("table", "zarr"), ("group", "zarr")]
ARRAY, GROUP, TABLE = [("array", "zarr")], [("group", "zarr")], [("table", "zarr")]
CASES = [
    (reader, [*ITEMS, *GROUP]),
    (alone, ITEMS),
    (column, [("table", layout) for layout in LAYOUTS]),
    (member, IN_ZARR),
    (inner_group, GROUP),
    (shards, ARRAY),
    (shared_group, GROUP),
    (block, IN_ZARR),
    (inner_block, GROUP),
    (interrupted, ITEMS),
    (rows, ITEMS),
    (rows_of_member, IN_ZARR),
    (rows_in_block, IN_ZARR[:2]),
    (child, ITEMS),
    (upon(child, member), IN_ZARR),
    (upon(child, block), IN_ZARR),
    (upon(child, shards), ARRAY),
    (upon(closed, reader), [*ITEMS, *GROUP]),
    (closed, ITEMS),
    (upon(closed, member), IN_ZARR),
    (upon(closed, inner_group), GROUP),
    (upon(closed, block), IN_ZARR[:2]),
    (upon(closed, shards), ARRAY),
    (upon(closed, interrupted), ITEMS),
]
CALLS = [
    *("read", "attrs", "info", "tasks", "pickle", "change", "assign", "begin"),
    *("flush", "refresh", "close", "leave"),
]


def calls_of(case):
    """Return the calls that there are in a case."""
    is_part = case.member not in ("", ".") or case.kind == "column"
    left_out = {"leave" if not is_part else "close"}
    left_out |= {"assign"} if case.kind == "group" else {"begin"}
    return [call for call in CALLS if call not in left_out]


@pytest.mark.parametrize(
    ("make", "kind", "layout"),
    [
        pytest.param(
            *(make, *where),
            id="-".join((make.__name__, *where)),
            marks=needs_fork if "child" in make.__name__ else (),
        )
        for make, places in CASES
        for where in places
    ],
)
def test_each_call(make, kind, layout, tmp_path):
    for call in CALLS:
        for case in make(kind, layout, str(tmp_path / call)):
            if call not in calls_of(case):
                continue
            done = []

            def work(case=case, call=call, done=done):
                check(case, call)
                done.append(call)

            decides = [s for s in case.found if RULES[call][s] is not SAME][-1]
            is_refused = isinstance(case.rule(call), Refused)
            if is_refused and decides is BLOCK and CHILD not in case.found:
                with pytest.raises(UsageError, match="one of the changes has failed"):
                    case.within(work)
            else:
                case.within(work)
            assert CHILD in case.found or done == [call]
            assert all(each() for each in case.later)


WAITING = [
    (alone, ITEMS),
    (member, IN_ZARR[:2]),
    (block, IN_ZARR[:2]),
    (interrupted, ITEMS),
    (rows, ARRAY),
    (child, ITEMS),
    (closed, ITEMS),
]


@pytest.mark.parametrize("call", ["buffer", "keep", "flush", "close", "leave"])
@pytest.mark.parametrize(
    ("make", "kind", "layout"),
    [
        pytest.param(
            *(make, *where),
            id="-".join((make.__name__, *where)),
            marks=needs_fork if make is child else (),
        )
        for make, places in WAITING
        for where in places
    ],
)
def test_rows_that_wait(make, kind, layout, call, tmp_path):
    """A row is appended to a dataset with a buffer; then the call is made.

    The call ``keep`` is an assignment instead.
    """
    of = {rows: alone, child: alone, closed: alone, block: member}.get(make)
    made = make if of is None else upon(make, of)
    for case in made(kind, layout, str(tmp_path / "d"), buffered=True):
        node, rule = case.node, case.rule(call)
        if call in ("close", "leave") and call not in calls_of(case):
            pytest.skip("the other call closes it")

        def append(node=node):
            if call == "keep":
                node[0] = rows_of(kind, [77])
            else:
                node.append(rows_of(kind, [77]))

        does = case.rule("keep" if call == "keep" else "buffer")

        def work(case=case, node=node, rule=rule, does=does):
            if isinstance(does, Refused):
                refused(case, does, append)
                return
            append()
            waits = layout == "zarr" or call != "keep"
            assert (does is MADE or not waits) == (77 in items(case.fresh()))
            if call not in ("buffer", "keep"):
                node.flush() if call == "flush" else node.close()
                assert rule is WRITES
                assert (BLOCK not in case.found) == (77 in items(case.fresh()))
            made = MADE if call == "keep" and TURNS in case.found else WAITS
            assert does is (JOINS if BLOCK in case.found else made)

        case.within(work)
        if does is JOINS:
            assert 77 in items(case.fresh())


@pytest.mark.parametrize("kind", ["array", "table"])
@pytest.mark.parametrize(
    ("layout", "is_member"),
    [("zarr", False), ("zarr", True), ("superchunk", False), ("bcolz", False)],
)
@pytest.mark.parametrize("is_behind", [False, True])
def test_rows_that_wait_after_an_interrupt(
    is_member, is_behind, layout, kind, tmp_path
):
    """They are written once, before the interrupt or after it."""
    path = str(tmp_path / "d")
    group = group_of(path, kind, layout, buffered=True) if is_member else None
    node = group[1] if group else create(path, kind, layout, buffered=True)
    with group[0] if group else node:
        node.append(rows_of(kind, [77]))
        interrupt(node.flush, is_behind=is_behind)
        assert len(node) == 8 + is_behind
        node.append(rows_of(kind, [78]))
        node.close()
    assert items(dataset.open(node.path))[8:] == [77, 78]


@pytest.mark.parametrize("kind", ["array", "table"])
@pytest.mark.parametrize("is_behind", [False, True])
def test_items_that_wait_after_an_interrupt(is_behind, kind, tmp_path):
    """The items of several shards wait; the first shard is being written."""
    path, cut = str(tmp_path / "d"), {"chunks": 2, "shards": 4}
    new = dataset.create_array if kind == "array" else dataset.create_table
    old = np.arange(16) if kind == "array" else {"x": np.arange(16)}
    with new(path, old, buffered=True, **cut) as node:
        for start in range(0, 16, 4):
            node[start : start + 1] = rows_of(kind, [100 + start])
        expected = [100 + i if i % 4 == 0 else i for i in range(16)]
        interrupt(node.flush, is_behind=is_behind)
        assert expected == items(node)
        node[1:2] = rows_of(kind, [7])
        expected[1] = 7
        assert expected == items(node)
    assert expected == items(dataset.open(path))


@pytest.mark.parametrize("layout", ["superchunk", "bcolz"])
@pytest.mark.parametrize("kind", ["array", "table"])
@pytest.mark.parametrize("make", [member, block, rows_of_member, rows_in_block])
def test_a_change_outside(make, kind, layout, tmp_path):
    """A member of another layout; the states are those of the group."""
    for case in make("array", "zarr", str(tmp_path / "g")):
        group = case.node._around
        other = create(group.create_group("in"), kind, layout)
        rule = case.rule("outside")

        def work(other=other, case=case, rule=rule):
            if isinstance(rule, Refused):
                values = {"path": other.path, "tree": case.tree}
                with pytest.raises(rule.kind) as caught:
                    change(other, kind)
                assert rule.text % values == str(caught.value)
            else:
                change(other, kind)
                assert len(dataset.open(other.path)) == 9

        if isinstance(rule, Refused):
            with pytest.raises(UsageError, match="one of the changes has failed"):
                case.within(work)
        else:
            case.within(work)
        assert len(other) == (8 if isinstance(rule, Refused) else 9)


def test_what_can_not_be(tmp_path):
    """The cells of the table without a rule."""
    empty = {(call, s) for call in RULES for s in State if RULES[call][s] is NEVER}
    path = str(tmp_path / "g")
    with group_of(path, "array", "zarr")[0] as group:
        # A group never has its folder for itself, and a failure ends with the change.
        assert [TURNS] == states_of(group._writer)
        for node in (group, group.create_group("in")):
            interrupt(lambda node=node: node.attrs.update(n=1))
            assert [TURNS] == states_of(node._writer)
        refuted = {("begin", ALONE), ("outside", ALONE)}
        outside = create(group.create_group("other"), "array", "bcolz")
    # Its members are closed with a group; those of a reader have no writer.
    assert outside.closed
    assert dataset.open(path)["other/m"]._writer is None
    refuted |= {("outside", CLOSED), ("outside", READER)}
    for place in ("", "/m", "/other"):
        with pytest.raises(UsageError, match="only one program at a time"):
            dataset.open(path + place, "r+", shared=True)
    with pytest.raises(UsageError, match="buffered"):
        dataset.open(path + "/m", "r+", shared=True, buffered=True)
    refuted |= {(call, SHARDS) for call in ("leave", "buffer", "keep")}
    # A member of another layout has its own writer, which a child inherits, too.
    refuted |= {("outside", CHILD)}
    assert refuted == empty


def test_the_table_is_complete():
    used = {rule for row in RULES.values() for rule in row}
    assert all(len(row) == len(State) for row in RULES.values())
    firsts = (READER, ALONE, TURNS, SHARDS, CLOSED)
    assert not any(row[s] is SAME for row in RULES.values() for s in firsts)
    assert {*type(SAME)} == {rule for rule in used if not isinstance(rule, Refused)}
    assert {*RULES} == {*CALLS, "buffer", "keep", "outside"}
