"""BigFile trees under MPI: the processes of a communicator share a tree.

Strategy: rank 0 alone creates folders and writes headers and attributes; each rank
writes its own rows. An error on one rank is raised on all ranks, so that none waits for
a rank that has left. Any object with the methods of `Communicator` serves, so that this
module does not import mpi4py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from .._storage.protocols import Path
from ..exceptions import BloscpackError, StorageError, UsageTypeError, UsageValueError
from .attributes import Attribute, Attributes, AttributeSet
from .column import Column
from .file import File, row_dtype, store, table_of
from .header import DType, Header, new_header
from .tree import Tree, clean_name
from .writing import Writer, added, write_header

Result = TypeVar("Result")


class Communicator(Protocol):
    """What is used of ``mpi4py.MPI.Comm``."""

    @property
    def rank(self) -> int: ...
    def bcast(self, obj: Any, root: int = 0) -> Any: ...
    def gather(self, sendobj: Any, root: int = 0) -> Any: ...
    def allgather(self, sendobj: Any) -> Any: ...


class Ranks:
    """The processes of a communicator, which succeed or fail together."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm

    @property
    def is_root(self) -> bool:
        """Whether this process is the one that writes headers."""
        return self.comm.rank == 0

    def on_root(self, action: Callable[[], Result]) -> Result:
        """Return on all ranks what `action` returns on rank 0, or raise its error."""
        result, own = _attempt(action) if self.is_root else (None, None)
        result, error = self.comm.bcast((result, _portable(own)))
        if own is not None or error is not None:
            raise own or error
        return result  # type: ignore[no-any-return]

    def on_all(self, action: Callable[[], Result]) -> list[Result]:
        """Return the results of all ranks; raise on all if `action` fails on any."""
        result, own = _attempt(action)
        answers = self.comm.allgather((result, _portable(own)))
        for error in (own, *(error for _, error in answers)):
            if error is not None:
                raise error
        return [result for result, _ in answers]

    def check_same(self, what: str, arguments: tuple[object, ...]) -> None:
        """Raise `UsageValueError` on all ranks if their arguments differ."""
        found = self.comm.allgather(arguments)
        for rank, other in enumerate(found):
            if other != found[0]:
                raise UsageValueError(
                    "all ranks must call '%s' with the same arguments: rank 0 has %s, "
                    "rank %d has %s" % (what, found[0], rank, other)
                )


def _attempt(action: Callable[[], Result]) -> tuple[Result | None, Exception | None]:
    try:
        return action(), None
    except Exception as error:
        return None, error


def _portable(error: Exception | None) -> Exception | None:
    """Return an error that can be sent to another process."""
    if error is None or isinstance(error, (BloscpackError, OSError)):
        return error
    return StorageError("%s: %s" % (type(error).__name__, error))


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

    def __init__(
        self,
        comm: Communicator,
        filename: Path,
        create: bool = False,
        *,
        follow_links: bool = False,
        nthreads: int | None = 1,
    ) -> None:
        ranks = Ranks(comm)

        def opened() -> tuple[str, list[str]]:
            file = File(filename, create, follow_links=follow_links)
            return file.basename, file.blocks

        path, blocks = ranks.on_root(opened)
        self._share(ranks, Tree(path, follow_links), "", nthreads, blocks)

    def _share(
        self,
        ranks: Ranks,
        tree: Tree,
        group: str,
        nthreads: int | None,
        blocks: list[str],
    ) -> None:
        self._set_up(tree, group, nthreads)
        self._ranks = ranks
        self._blocks = blocks

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._ranks.comm

    @property
    def blocks(self) -> list[str]:
        return list(self._blocks)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and clean_name(name) in self._blocks
        except UsageValueError:
            return False

    def refresh(self) -> None:
        """Read the list of blocks again: another program may have created some."""
        self._blocks = self._ranks.on_root(lambda: self._tree.blocks(self._group))

    @property
    def attrs(self) -> AttributeSet:
        """The attributes of the tree or the group; only rank 0 stores changes."""
        folder = self._tree.folder(self._group)
        return AttributeSetMPI(self._tree, folder, self._ranks.is_root)

    def __getitem__(self, key: str | list[str]) -> Any:
        if isinstance(key, (list, tuple)):
            return super().__getitem__(key)
        full = self._full(key)
        is_block = self._ranks.on_root(lambda: self._tree.is_block(full))
        if key.endswith("/") or not is_block:
            return self.subfile(key)
        return self.open(key)

    def subfile(self, key: str) -> FileMPI:
        """Return a group as a `FileMPI`."""
        self._ranks.check_same("subfile", (key,))
        full = self._full(key)
        self._ranks.on_root(lambda: self._tree.require(full))
        prefix = clean_name(key) + "/"
        blocks = [n.removeprefix(prefix) for n in self._blocks if n.startswith(prefix)]
        group = FileMPI.__new__(FileMPI)
        group._share(self._ranks, self._tree, full, self._nthreads, blocks)
        return group

    def open(self, blockname: str) -> ColumnMPI:
        """Return a block. Rank 0 alone reads its header."""
        self._ranks.check_same("open", (blockname,))
        opened = super().open
        layout = self._ranks.on_root(lambda: opened(blockname)._layout)
        return self._column(self._full(blockname), layout)

    def create(
        self,
        blockname: str,
        dtype: Any = None,
        size: int | None = None,
        Nfile: int = 1,
    ) -> ColumnMPI:
        """Create a block, or replace one; each rank can then write rows to it."""
        arguments = blockname, str(dtype), size, Nfile
        self._ranks.check_same("create", arguments)
        created = super().create
        layout = self._ranks.on_root(
            lambda: created(blockname, dtype, size, Nfile)._layout
        )
        full = self._full(blockname)
        self._add(full)
        return self._column(full, layout)

    def create_from_array(
        self, blockname: str, array: Any, Nfile: int | None = None
    ) -> ColumnMPI:
        """Create a block, or replace one, with the rows of all ranks, in their order.

        Parameters
        ----------
        array
            The rows of this rank. It may have none.
        Nfile
            The number of data files; by default one for 32 Mi rows.
        """
        self._ranks.check_same("create_from_array", (blockname, Nfile))
        parts = self._ranks.on_all(lambda: _described(array))
        starts = [0, *accumulate(size for size, _ in parts)]
        full = self._full(blockname)
        new = new_header(_common(parts), starts[-1], Nfile)
        make = self._make
        self._ranks.on_root(lambda: make(full, new) and None)
        column = self._column(full, new)
        writer = column._writer
        writer.begin_new()
        try:
            start = starts[self.comm.rank]
            self._ranks.on_all(lambda: store(table_of(array), column, start))
            taken = self.comm.gather(writer.take())
            self._ranks.on_root(lambda: column._write_header(new, taken))
        finally:
            writer.take()  # nothing is left to commit, unless an error occurred
        self._add(full)
        return column

    def _add(self, full: str) -> None:
        """Add a new block to the list, unless it is a group."""
        prefix = self._group + "/" if self._group else ""
        if self._ranks.on_root(lambda: self._tree.is_block(full)):
            self._blocks = sorted({*self._blocks, full.removeprefix(prefix)})

    def _column(self, full: str, layout: Header) -> ColumnMPI:
        writer = Writer(self._tree, self._tree.folder(full), layout)
        column = ColumnMPI._over(self._tree, full, writer, self._nthreads)
        column._join(self._ranks)
        return column


def _described(array: Any) -> tuple[int, DType]:
    table = table_of(array)
    return table.shape[0], row_dtype(table)


def _common(parts: list[tuple[int, DType]]) -> DType:
    """Return the type of the rows of all ranks; a rank without rows has no say."""
    dtypes = [dtype for size, dtype in parts if size] or [parts[0][1]]
    for dtype in dtypes:
        if dtype != dtypes[0]:
            raise UsageTypeError(
                "the rows of all ranks must have the same type, found '%s' and '%s'"
                % (dtypes[0], dtype)
            )
    return dtypes[0]


class ColumnMPI(Column):
    """A block of a BigFile tree that the processes of a communicator share.

    Each rank reads and writes rows of its own, without waiting for the others. All
    ranks must call `flush`, `close`, `append` and `grow`, or leave the ``with`` block.
    There rank 0 adds the checksums of all ranks to the header. If a rank leaves the
    block with an error, the other ones raise an error, too.
    """

    _ranks: Ranks
    attrs: AttributeSetMPI

    def _join(self, ranks: Ranks) -> None:
        self._ranks = ranks
        # The message for the other ranks when a rank has left with an error.
        self._failure: str | None = None
        self.attrs = AttributeSetMPI(self._tree, self._folder, ranks.is_root)

    @property
    def comm(self) -> Communicator:
        """The communicator."""
        return self._ranks.comm

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
        texts = self.comm.allgather(None if own is None else _text(own))
        failed = [rank for rank, text in enumerate(texts) if text is not None]
        if failed:
            self._failure = (
                "rank %d has failed, so rows of the block '%s' may be missing: %s"
                % (failed[0], self.name, texts[failed[0]])
            )
        taken = self.comm.gather((self._writer.take(), self.attrs.take()))
        self._ranks.on_root(lambda: self._commit(taken))
        if failed and own is None:
            raise StorageError(self._failure)

    def _commit(self, taken: list[Any]) -> None:
        self._writer.commit_all(written for written, _ in taken)
        self.attrs.adopt([changes for _, changes in taken])

    def _write_header(self, new: Header, taken: list[Any]) -> None:
        sums, _ = added(taken)
        write_header(self._tree, self._folder, new.with_sums(sums), [])

    def append(self, buf: Any, Nfile: int = 1) -> None:
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
        self._ranks.check_same("grow", (size, Nfile))
        grown = super().grow

        def layout() -> Header:
            grown(size, Nfile)
            return self._layout

        self._writer.adopt(self._ranks.on_root(layout))

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


def _text(error: BaseException) -> str:
    return "%s: %s" % (type(error).__name__, error)


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
        self._changes: dict[bytes, Attribute | None] = {}

    def _load(self) -> Attributes:
        found = super()._load()
        if self._is_root or not self._changes:
            return found
        merged = {**found, **self._changes}
        return {name: each for name, each in merged.items() if each is not None}

    def _change(self, removed: list[bytes], added: Attributes) -> None:
        if self._is_root:
            super()._change(removed, added)
        self._changes.update({**dict.fromkeys(removed), **added})

    def take(self) -> dict[bytes, Attribute | None]:
        """Return what this rank has changed since the last call."""
        taken, self._changes = self._changes, {}
        return taken

    def adopt(self, changes: list[dict[bytes, Attribute | None]]) -> None:
        """Store the changes of all ranks; the lowest rank decides about a name."""
        merged: dict[bytes, Attribute | None] = {}
        for each in reversed(changes[1:]):
            merged.update(each)
        mine = [name for name in merged if name not in changes[0]]
        known = self._load()
        new = {name: kept for name in mine if (kept := merged[name]) is not None}
        removed = [name for name in mine if merged[name] is None and name in known]
        if new or removed:
            super()._change(removed, new)
