"""The states of an open dataset, and what each call does in each state.

`RULES` decides, and has each error of a call that is wrong in a state. Call `ask`, and
do what it returns: nothing else may compare states to allow or refuse a call.

The table is about threads and processes, not about kinds: a column never changes its
length, and a layout that can only be read has no writer.
"""

from __future__ import annotations

import os
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .._engine.forks import OTHER_PROCESS
from .._engine.threads import get_caller
from ..exceptions import UsageError, UsageValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Writer


# The states of a dataset for the calling thread. It has one of the first four, or is
# closed, and it may have some of the others besides. The last state that it has decides
# what a call does; where that says `SAME`, the state before it decides.
# READER  it has no writer, or a child process has inherited it;
# ALONE   it can be changed by no other program until it is closed: an array, a table;
# TURNS   it can, between two changes: a group, and what its document commits;
# SHARDS  it can at the same time, shard by shard: ``shared=True``; or a group, whose
#         arrays can;
# BLOCK   the thread is in a block of ``group.change()``;
# ROWS    the thread makes a change, for which it produces rows;
# CHILD   the process has inherited the writer of its parent;
# CLOSED  it is closed.
State = IntEnum("State", "READER ALONE TURNS SHARDS BLOCK ROWS CHILD CLOSED", start=0)
READER, ALONE, TURNS, SHARDS, BLOCK, ROWS, CHILD, CLOSED = State

# What a call does. It sees the items, or the attributes,
# OPENED  that were there when the dataset was opened, refreshed or changed here;
# NOW     that are there now, which only this program changes;
# FRESH   that are there now, which other programs may have changed;
# DRAFT   that the block leaves.
# It returns
# COPY    a copy for reading;
# TWIN    a copy that is one more shared writer; of a group, one for reading.
# It changes the dataset:
# MADE    it waits for the changes of others; when it returns, its change is committed;
# EACH    it does so for each shard;
# JOINS   the change is a part of the change of the block;
# WAITS   the change waits in memory;
# WRITES  changes that wait in memory are made first.
# Other calls:
# DONE    there is nothing to write or to unlock;
# SAME    it does the same as without this state;
# NEVER   it can't be made in this state.
Does = Enum(
    "Does",
    "OPENED NOW FRESH DRAFT COPY TWIN MADE EACH JOINS WAITS WRITES DONE SAME NEVER",
)
OPENED, NOW, FRESH, DRAFT, COPY, TWIN = list(Does)[:6]
MADE, EACH, JOINS, WAITS, WRITES, DONE, SAME, NEVER = list(Does)[6:]


class Refused(NamedTuple):
    """The error of a call.

    The text may have the `path` of the dataset, the path of the `tree` that one writer
    changes, the numbers of the process of the writer (`owner`) and of this one, and
    `why` the dataset is closed.
    """

    kind: type[UsageError]
    text: str

    def error(self, **values: object) -> UsageError:
        """Return the error with these values."""
        return self.kind(self.text % values)


READS = Refused(
    UsageValueError,
    "the dataset was opened for reading: '%(path)s'. Mode 'r+' opens it for changes. A "
    "copied or pickled object is for reading, as on a worker of Dask, unless the array "
    "was opened with shared=True; and so is a member of a group whose layout can only "
    "be read: 'blpk convert' makes one that can be changed",
)
SHARED = Refused(
    UsageError,
    "'%(tree)s' was opened with shared=True: only items of arrays can be assigned to. "
    "Open it without, to change anything else",
)
NESTED = Refused(UsageError, "'%(tree)s' is being changed already by this thread")
OUTER = Refused(
    UsageError,
    "the document of the group '%(tree)s' does not commit '%(path)s', which has "
    "another layout or was made by another program: change it outside of the block",
)
LATER = Refused(
    UsageError,
    "'%(path)s' is being changed by this thread: tasks of Dask would read the state "
    "before, in other threads. Call it after the block",
)
INNER = Refused(UsageError, "'%(tree)s' can't be closed within a change of it")
BUSY = Refused(
    UsageError,
    "'%(tree)s' can't be changed or closed while rows for a change of it are produced",
)
OTHER = Refused(UsageError, OTHER_PROCESS)
GONE = Refused(UsageValueError, "the dataset is closed%(why)s: '%(path)s'")

# The calls:
# read     read items; of a group, the members
# attrs    read the attributes
# info     read all else
# tasks    return a collection of Dask, whose tasks read items later
# change   change anything but items by an index, for which there is
# assign
# buffer   let appended rows wait in memory, with ``buffered=True``
# keep     let assigned items wait there, in whole chunks
# begin    begin a block of ``group.change()``
# outside  change a member that the document of this group does not commit
# close    close a dataset that has a writer of its own
# leave    close a column, or a member that the document of a group commits
# fmt: off
RULES: dict[str, tuple[Does | Refused, ...]] = {
    #           READER  ALONE   TURNS   SHARDS  BLOCK   ROWS    CHILD   CLOSED
    "read":    (OPENED, NOW,    OPENED, FRESH,  DRAFT,  SAME,   SAME,   GONE),
    "attrs":   (OPENED, NOW,    OPENED, OPENED, DRAFT,  SAME,   SAME,   OPENED),
    "info":    (OPENED, NOW,    OPENED, FRESH,  DRAFT,  SAME,   SAME,   OPENED),
    "tasks":   (OPENED, NOW,    OPENED, FRESH,  LATER,  SAME,   SAME,   GONE),
    "pickle":  (COPY,   COPY,   COPY,   TWIN,   SAME,   SAME,   SAME,   COPY),
    "change":  (READS,  MADE,   MADE,   SHARED, JOINS,  BUSY,   OTHER,  GONE),
    "assign":  (READS,  MADE,   MADE,   EACH,   JOINS,  BUSY,   OTHER,  GONE),
    "buffer":  (READS,  WAITS,  WAITS,  NEVER,  JOINS,  BUSY,   OTHER,  GONE),
    "keep":    (READS,  WAITS,  MADE,   NEVER,  JOINS,  BUSY,   OTHER,  GONE),
    "begin":   (READS,  NEVER,  MADE,   SHARED, NESTED, BUSY,   OTHER,  GONE),
    "outside": (NEVER,  NEVER,  MADE,   MADE,   OUTER,  SAME,   NEVER,  NEVER),
    "flush":   (READS,  WRITES, WRITES, WRITES, SAME,   SAME,   OTHER,  GONE),
    "refresh": (FRESH,  NOW,    FRESH,  FRESH,  DRAFT,  SAME,   SAME,   GONE),
    "close":   (DONE,   WRITES, WRITES, WRITES, INNER,  BUSY,   DONE,   DONE),
    "leave":   (DONE,   WRITES, WRITES, NEVER,  SAME,   BUSY,   DONE,   DONE),
}
# fmt: on


def states_of(writer: Writer | None, is_closed: bool = False) -> list[State]:
    """Return the states of a dataset for this thread, in their order."""
    if writer is None:
        states = [READER]
    else:
        states = [writer.rule.state]
        if writer.current is not None and writer.block is not None:
            states.append(BLOCK)
        if writer.producer and writer.producer == get_caller():
            states.append(ROWS)
        if not writer.is_here:
            states.append(CHILD)
    if is_closed:
        states.append(CLOSED)
    return states


def ask(
    call: str,
    writer: Writer | None,
    path: str,
    is_closed: bool = False,
    why: Callable[[], str] = str,
) -> Does:
    """Return what a call of this thread does; raise its error if it is refused.

    `why` returns the reason for which the dataset was closed, with a comma in front.
    A block of `change` that refuses a call does not commit: a part of it is missing.
    """
    rules, states = RULES[call], states_of(writer, is_closed)
    while (does := rules[states[-1]]) is SAME:
        states.pop()
    if isinstance(does, Does):
        return does
    values: dict[str, object] = {"path": path, "here": os.getpid(), "why": why()}
    if writer is not None:
        values.update(tree=writer.path, owner=writer.pid)
    error = does.error(**values)
    if writer is not None and states[-1] is BLOCK and writer.block is not None:
        writer.block.change.note_failure(error)
    raise error
