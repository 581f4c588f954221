"""BigFile trees under MPI: the processes of a communicator share a tree.

Strategy: rank 0 alone creates folders and writes headers and attributes; each rank
writes its own rows. An error on one rank is raised on all ranks, so that none waits for
a rank that has left. Any object with the methods of `Communicator` serves, so that this
module does not import mpi4py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from numpy.typing import ArrayLike

from .._types import Path
from ..exceptions import BloscpackError, StorageError, UsageValueError
from .attributes import Attribute, Attributes, AttributeSet
from .column import NO_ROWS, Column
from .file import Alone, File, Result
from .header import Header
from .tree import Tree

# The new attributes, and None for those that are removed.
Changes = dict[bytes, Attribute | None]


class Communicator(Protocol):
    """What is used of ``mpi4py.MPI.Comm``."""

    @property
    def rank(self) -> int: ...
    def allgather(self, sendobj: object) -> Any: ...


class Ranks(Alone):
    """The processes of a communicator, which succeed or fail together."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank = comm.rank

    def on_all(self, action: Callable[[], Result]) -> list[Result]:
        """Return the results of all ranks; raise on all if `action` fails on any."""
        result, own, sent = None, None, None
        try:
            result = action()
        except Exception as error:
            own = sent = error
            if not isinstance(error, (BloscpackError, OSError)):
                # It may be impossible to send it to another process.
                sent = StorageError("%s: %s" % (type(error).__name__, error))
        answers = self.comm.allgather((result, sent))
        for failure in (own, *(failure for _, failure in answers)):
            if failure is not None:
                raise failure
        return [result for result, _ in answers]

    def on_root(self, action: Callable[[], Result]) -> Result:
        """Return on all ranks what `action` returns on rank 0, or raise its error."""
        results = self.on_all(lambda: action() if self.rank == 0 else None)
        return results[0]  # type: ignore[return-value]

    def check_same(self, what: str, *arguments: object) -> None:
        """Raise `UsageValueError` on all ranks if their arguments differ."""
        all_arguments = self.comm.allgather(arguments)
        for rank, other in enumerate(all_arguments):
            if other != all_arguments[0]:
                raise UsageValueError(
                    "all ranks must call '%s' with the same arguments: rank 0 has %s, "
                    "rank %d has %s" % (what, all_arguments[0], rank, other)
                )


def check_unique(variable: object, comm: Communicator) -> bool:
    """Return whether all ranks have the same value."""
    return all(other == variable for other in comm.allgather(variable))


class FileMPI(File):
    """A BigFile tree that the processes of a communicator share.

    All ranks must call its methods, in the same order and with the same arguments;
    `blocks` and the test with ``in`` are local. The other names are those of `File`.

    Parameters
    ----------
    comm
        A communicator of mpi4py.
    nthreads
        The number of threads of each rank that read and write a column.
    """

    # The names of all blocks, from the root of the tree.
    _names: list[str]
    _ranks: Ranks

    def __init__(
        self,
        comm: Communicator,
        filename: Path,
        create: bool = False,
        *,
        follow_links: bool = False,
        nthreads: int | None = 1,
    ) -> None:
        self.comm, self._ranks = comm, Ranks(comm)
        self._ranks.check_same("FileMPI", os.fspath(filename), create)
        super().__init__(filename, create, follow_links=follow_links, nthreads=nthreads)
        self.refresh()

    def _column(self, full: str, header: Header) -> ColumnMPI:
        return ColumnMPI(self.comm, self._tree, full, header, self._nthreads)

    @property
    def blocks(self) -> list[str]:
        prefix = self._group + "/" if self._group else ""
        return [n.removeprefix(prefix) for n in self._names if n.startswith(prefix)]

    def create_filled(self, full: str, *arguments: Any) -> Column:
        column = super().create_filled(full, *arguments)
        self._names = sorted({*self._names, full})
        return column

    def refresh(self) -> None:
        """Read the list of blocks again: another program may have created some."""
        self._names = self._ranks.on_root(self._tree.blocks)

    @property
    def attrs(self) -> AttributeSet:
        """The attributes of the tree or the group; only rank 0 stores changes."""
        folder = self._tree.folder(self._group)
        return AttributeSetMPI(self._tree, folder, self._ranks.rank == 0)


class ColumnMPI(Column):
    """A block of a BigFile tree that the processes of a communicator share.

    Each rank reads and writes rows of its own, without waiting for the others. All
    ranks must call `flush`, `close`, `append` and `grow`, or leave the ``with`` block.
    There rank 0 adds the checksums of all ranks to the header. If a rank leaves the
    block with an error, the other ones raise an error, too.
    """

    comm: Communicator
    _attrs: AttributeSetMPI

    def __init__(
        self,
        comm: Communicator,
        tree: Tree | None = None,
        name: str = "",
        header: Header = NO_ROWS,
        nthreads: int | None = 1,
    ) -> None:
        super().__init__(tree, name, header, nthreads)
        self.comm, self._ranks = comm, Ranks(comm)
        # The message for the other ranks when a rank has left with an error.
        self._failure: str | None = None
        if tree is not None:
            self._attrs = AttributeSetMPI(tree, self._folder, self._ranks.rank == 0)

    def flush(self) -> None:
        """Add the checksums of the rows written by all ranks to the header."""
        self._check_open()
        if self._failure is not None:
            raise StorageError(self._failure)
        self._meet(None)

    def _meet(self, own: BaseException | None) -> None:
        """Commit what all ranks have written; raise if another rank has failed.

        `own` is the error with which this rank leaves. Each method that all ranks call
        begins with this, so that ranks that leave and ranks that go on meet here.
        """
        text = None if own is None else "%s: %s" % (type(own).__name__, own)
        answers = self.comm.allgather((text, self._block.take(), self._attrs.take()))
        failed = [rank for rank, answer in enumerate(answers) if answer[0] is not None]
        if failed:
            self._failure = (
                "rank %d has failed, so rows of the block '%s' may be missing: %s"
                % (failed[0], self.name, answers[failed[0]][0])
            )

        def commit() -> None:
            self._block.commit_all(written for _, written, _ in answers)
            self._attrs.adopt([changes for _, _, changes in answers])

        self._ranks.on_root(commit)
        if failed and own is None:
            raise StorageError(self._failure)

    def append(self, buf: ArrayLike, Nfile: int = 1) -> None:
        """Add the rows of all ranks at the end, in their order, in new data files.

        The header promises the rows before they are written; if a rank is killed,
        `verify` names the rows that are missing.
        """
        self.flush()
        sizes = self._ranks.on_all(lambda: len(self._as_rows(buf)))
        start = self.size + sum(sizes[: self.comm.rank])
        self.grow(sum(sizes), Nfile)
        self._ranks.on_all(lambda: self.write(start, buf))
        self.flush()

    def grow(self, size: int, Nfile: int = 1) -> None:
        """Add `size` rows without values, in `Nfile` new data files."""
        self.flush()
        self._ranks.check_same("grow", size, Nfile)
        grown = super().grow

        def header() -> Header:
            grown(size, Nfile)
            return self._header

        self._block.header = self._ranks.on_root(header)

    def close(self) -> None:
        """Flush, and close the files. The column can't be used any more."""
        self._close(None)

    def _close(self, own: BaseException | None) -> None:
        if self._closed:
            return
        try:
            if self._failure is None:  # else the failed rank has left
                self._meet(own)
        finally:
            super().close()

    def __exit__(self, *error: Any) -> None:
        self._close(error[1])


class AttributeSetMPI(AttributeSet):
    """The attributes of a block that the processes of a communicator share.

    All ranks may set an attribute, or a single one. Rank 0 stores it at once. The
    change of another rank follows when the column is flushed or closed, unless rank 0
    has changed the same attribute.
    """

    def __init__(self, tree: Tree, folder: str, is_root: bool) -> None:
        super().__init__(tree, folder)
        self._is_root = is_root
        # What this rank has changed since the last flush; None for a removed one.
        self._changes: Changes = {}

    def _load(self) -> Attributes:
        attributes = super()._load()
        if self._is_root or not self._changes:
            return attributes
        merged = {**attributes, **self._changes}
        return {name: each for name, each in merged.items() if each is not None}

    def _change(self, removed: list[bytes], added: Attributes) -> None:
        if self._is_root:
            super()._change(removed, added)
        self._changes.update({**dict.fromkeys(removed), **added})

    def take(self) -> Changes:
        """Return what this rank has changed since the last call."""
        taken, self._changes = self._changes, {}
        return taken

    def adopt(self, changes: list[Changes]) -> None:
        """Store the changes of all ranks; the lowest rank decides about a name."""
        merged: Changes = {}
        for each in reversed(changes):
            merged.update(each)
        known = self._load()
        removed = [name for name, new in merged.items() if new is None]
        removed = [name for name in removed if name in known]
        added = {name: new for name, new in merged.items() if new is not None}
        if any(changes[1:]):
            super()._change(removed, added)
