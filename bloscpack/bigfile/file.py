"""A BigFile tree, or a group in it: finds blocks, creates blocks, copies blocks.

Strategy: the folders are the only list of blocks. It is read once, and again after a
block has been created. A new block is made of a table that is read in pieces: an array,
or another block. A copy of a block has the checksums of its own bytes, and its
attributes keep their types. Rows that no writer has finished are not copied; the copy
lists them as unfinished, too. Only users who can read a block can read its copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, TypeVar

import numpy
from numpy.typing import DTypeLike

from .._format.dtypes import AnyArray, DType
from .._format.rows import Rows, without
from .._storage.base import Closing
from .._storage.paths import is_missing, local_path, without_url
from .._types import Path
from ..exceptions import NoSuchBlock, UsageTypeError, UsageValueError
from .attributes import AttributeSet
from .column import NO_ROWS, Column, header_of
from .header import FILE_NAME, Header, check_convertible, new_header
from .records import Dataset
from .tree import (
    ATTRIBUTES,
    LEGACY,
    UNWRITTEN,
    Tree,
    check_new_name,
    clean_name,
    is_data_file,
)

Progress = Callable[[int], object]
Result = TypeVar("Result")

# Number of bytes that are taken from a table at a time.
TAKEN_NBYTES = 2**24


def row_dtype(array: AnyArray) -> DType:
    """Return the type of a row of a table."""
    nmemb = array.shape[1] if len(array.shape) == 2 else 1
    return numpy.dtype((array.dtype, (nmemb,)))


def pieces_of(array: AnyArray, most: int) -> Iterator[tuple[int, int]]:
    """Yield the rows of a table as ranges of at most `most` bytes, or of one chunk.

    They end where chunks end, so that no chunk is decompressed or computed twice.
    ``array.chunks`` has the number of rows of a chunk, or of each chunk in a tuple.
    """
    size = array.shape[0]
    step = max(1, most // max(1, row_dtype(array).itemsize))
    chunks = getattr(array, "chunks", None)
    rows = (chunks[0] or 1) if chunks else step
    start = previous = 0
    for end in accumulate(rows) if isinstance(rows, tuple) else range(rows, size, rows):
        if end - start > step and previous > start:
            yield start, previous
            start = previous
        previous = end
    for end in (previous, size):
        if start < end:
            yield start, end
            start = end


class Alone:
    """The only process of a program; `mpi.Ranks` are several, which act together."""

    rank = 0

    def on_all(self, action: Callable[[], Result]) -> list[Result]:
        """Return the results of all ranks; raise on all if `action` fails on any."""
        return [action()]

    def on_root(self, action: Callable[[], Result]) -> Result:
        """Return on all ranks what `action` returns on rank 0, or raise its error."""
        return action()

    def check_same(self, what: str, *arguments: object) -> None:
        """Raise `UsageError` if another rank passes other arguments to a method."""


class File(Closing):
    """A BigFile tree: a folder of blocks, in groups.

    ``tree['0/Position']`` is a `Column`, ``tree['0/']`` the group as a `File`, and
    ``tree[['a', 'b']]`` a `Dataset` of two columns.

    Parameters
    ----------
    filename
        The path of the folder.
    create
        Whether to create the folder, and those above it, if it does not exist.
    follow_links
        Whether symbolic links may lead out of the folder. Without it they are refused,
        and not listed.
    nthreads
        The number of threads that read and write a column; by default the number of
        CPUs.

    Attributes
    ----------
    basename
        The path of the folder.
    blocks
        The names of all blocks, sorted.
    attrs
        The attributes of the tree or the group itself.

    Raises
    ------
    NoSuchBlock
        If the folder does not exist.
    """

    _ranks = Alone()

    def __init__(
        self,
        filename: Path,
        create: bool = False,
        *,
        follow_links: bool = False,
        nthreads: int | None = None,
    ) -> None:
        path = os.fsdecode(local_path(filename))
        without_url(path, "a BigFile tree")

        def check() -> None:
            if create:
                os.makedirs(path, exist_ok=True)
            if not os.path.isdir(path):
                fault = "is not a folder"
                try:
                    os.stat(path)
                except OSError as error:
                    if not is_missing(error):
                        raise
                    fault = "does not exist"
                raise NoSuchBlock("'%s' %s, so it is no BigFile tree" % (path, fault))

        self._ranks.on_root(check)
        self._tree = Tree(path, follow_links)
        self._nthreads = nthreads
        self._enter("")

    def _enter(self, group: str) -> None:
        self._group = group
        path = self._tree.path
        self.basename = os.path.join(path, group) if group else path

    def _column(self, full: str, header: Header) -> Column:
        return Column(self._tree, full, header, self._nthreads)

    @property
    def blocks(self) -> list[str]:
        return self._tree.blocks(self._group)

    @property
    def attrs(self) -> AttributeSet:
        return AttributeSet(self._tree, self._tree.folder(self._group))

    def refresh(self) -> None:
        """Do nothing: `blocks` looks at the folders. `FileMPI` has a list of blocks."""

    def keys(self) -> list[str]:
        """Return the names of all blocks; so does `list_blocks`."""
        return self.blocks

    list_blocks = keys

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocks)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._tree.is_block(self._full(name))
        except UsageValueError:
            return False

    def __getitem__(self, key: str | list[str]) -> Any:
        if isinstance(key, (list, tuple)):
            return Dataset(self, key)
        full = self._full(key)
        is_block = self._ranks.on_root(lambda: self._tree.is_block(full))
        if key.endswith("/") or not is_block:
            return self.subfile(key)
        return self.open(key)

    def __repr__(self) -> str:
        return "<File '%s'>" % self.basename

    def _full(self, name: str) -> str:
        """Return the name of a block from the root of the tree."""
        return "/".join(filter(None, (self._group, clean_name(name))))

    def subfile(self, key: str) -> File:
        """Return a group as a `File`."""
        self._ranks.check_same("subfile", key)
        full = self._full(key)
        self._ranks.on_root(lambda: self._tree.require(full))
        group = type(self).__new__(type(self))
        vars(group).update(vars(self))
        group._enter(full)
        return group

    def open(self, blockname: str) -> Column:
        """Return a block; the name ``.`` stands for the group itself."""
        self._ranks.check_same("open", blockname)
        full = self._full(blockname)

        def header() -> Header:
            is_block = self._tree.is_block(full)
            if not is_block and clean_name(blockname) and not _is_self(blockname):
                raise NoSuchBlock("'%s' has no block '%s'" % (self.basename, blockname))
            return header_of(self._tree, full)

        return self._column(full, self._ranks.on_root(header))

    def create(
        self,
        blockname: str,
        dtype: DTypeLike | None = None,
        size: int | None = None,
        Nfile: int = 1,
    ) -> Column:
        """Create a block, or replace one, and return it.

        Its header promises all rows at once, so that other processes can write to it.
        `bloscpack.bigfile.verify` names the rows that no writer has finished.

        Parameters
        ----------
        dtype
            The type of an item, or of a row like ``('f4', 3)``. Without it, the block
            has no rows, whatever `size` says, and holds attributes.
        size
            The number of rows.
        Nfile
            The number of data files.

        Raises
        ------
        UsageTypeError
            If the format does not have the type. Then nothing has been created.
        """
        self._ranks.check_same("create", blockname, str(dtype), size, Nfile)
        full = self._full(blockname)
        if not full or _is_self(blockname):
            self._ranks.on_root(lambda: self._tree.make_folder(full))
            return self.open(blockname)
        if dtype is None:
            new = NO_ROWS
        else:
            new = new_header(numpy.dtype(dtype), size or 0, Nfile)
        rows = [(0, new.size)] if new.size else []
        return self.create_filled(full, new, lambda column: None, rows)

    def create_from_array(
        self,
        blockname: str,
        array: Any,
        Nfile: int | None = None,
        memorylimit: int | None = TAKEN_NBYTES,
    ) -> Column:
        """Create a block, or replace one, with the rows of an array, and return it.

        The header is written when all rows are in the files. Under MPI, each rank has
        rows of the block, in the order of the ranks; it may have none.

        Parameters
        ----------
        array
            An array with one or two axes, or any object with ``shape``, ``dtype`` and
            slices that NumPy can read, such as an array of Dask or another column;
            then it is read in parts.
        Nfile
            The number of data files; by default one for 32 Mi rows.
        memorylimit
            Maximum number of bytes that are taken from the array at a time, unless a
            row or a chunk has more.

        Raises
        ------
        UsageTypeError, UsageValueError
            If the format does not have the type or the shape. Then nothing has been
            created.
        """
        ranks, full = self._ranks, self._full(blockname)
        ranks.check_same("create_from_array", blockname, Nfile)

        def described() -> tuple[int, DType]:
            nonlocal array
            if not (hasattr(array, "shape") and hasattr(array, "dtype")):
                array = numpy.asarray(array)
            if len(array.shape) not in (1, 2):
                raise UsageValueError(
                    "a block has one or two axes, not the shape %s" % (array.shape,)
                )
            if isinstance(array, Column) and array._folder == self._tree.folder(full):
                raise UsageValueError("'%s' would be copied over itself" % blockname)
            return array.shape[0], row_dtype(array)

        parts = ranks.on_all(described)
        starts = [0, *accumulate(size for size, _ in parts)]
        # A rank without rows has no say in the type.
        dtypes = [dtype for size, dtype in parts if size] or [parts[0][1]]
        for dtype in dtypes:
            if dtype != dtypes[0]:
                raise UsageTypeError(
                    "the rows of all ranks must have the same type, found '%s' and '%s'"
                    % (dtypes[0], dtype)
                )
        most = TAKEN_NBYTES if memorylimit is None else memorylimit

        def fill(column: Column) -> None:
            def store() -> None:
                for start, stop in pieces_of(array, most):
                    rows = numpy.asarray(array[start:stop])
                    row = starts[ranks.rank] + start
                    column.write(row, rows.reshape(-1, column.nmemb))
                    del rows  # before the next ones are read

            ranks.on_all(store)

        return self.create_filled(full, new_header(dtypes[0], starts[-1], Nfile), fill)

    def create_filled(
        self,
        full: str,
        new: Header,
        fill: Callable[[Column], object],
        unwritten: Rows | None = None,
    ) -> Column:
        """Create a block with a header, and let `fill` write its rows.

        `full` is its name from the root of the tree. The header is written when `fill`
        returns: until then, an existing block keeps its old one, and a new one does not
        exist. `unwritten` are the rows that `fill` leaves out.
        """
        self._ranks.on_root(lambda: self._make_files(full, new))
        column = self._column(full, new)
        column._block.begin_new()
        try:
            fill(column)
            taken = self._ranks.on_all(column._block.take)

            def finish() -> None:
                header = new
                for sums, _ in taken:
                    header = header.with_sums(sums)
                self._tree.write_state(column._folder, header, unwritten or [])

            self._ranks.on_root(finish)
        finally:
            column._block.take()  # nothing is left to commit, unless an error occurred
        return column

    def _make_files(self, full: str, new: Header) -> None:
        """Create or empty the data files and the attributes of a block."""
        tree, parents = self._tree, full.split("/")
        check_new_name(full)
        for depth in range(1, len(parents)):
            parent = "/".join(parents[:depth])
            if tree.is_block(parent):
                raise UsageValueError(
                    "'%s' is a block, so '%s' would not be listed" % (parent, full)
                )
        if not tree.is_block(full) and tree.is_group(full) and tree.blocks(full):
            raise UsageValueError(
                "'%s' is a group of blocks, so it can't be a block" % full
            )
        folder = tree.make_folder(full)
        names = [FILE_NAME % number for number in range(len(new.rows))]
        for name in names:
            tree.create_file(os.path.join(folder, name))
        stale = {UNWRITTEN, LEGACY}
        if tree.limits is not None:
            # Rows that are appended would be as public as these.
            stale.update(filter(is_data_file, os.listdir(folder)))
        for name in stale.difference(names):
            tree.remove_file(os.path.join(folder, name))
        tree.replace_text(os.path.join(folder, ATTRIBUTES), b"")

    def close(self) -> None:
        """Do nothing: a tree has no open files."""

    def __reduce__(self) -> tuple[object, ...]:
        tree = self._tree
        return _reopen, (tree.root, tree.follow_links, self._group, self._nthreads)


def _reopen(root: str, follow_links: bool, group: str, nthreads: int | None) -> File:
    file = File(root, follow_links=follow_links, nthreads=nthreads)
    return file.subfile(group) if group else file


def _is_self(name: str) -> bool:
    """Return whether a name like ``0/.`` stands for a group itself."""
    return name == "." or name.endswith("/.")


def repartition(
    file: File,
    block: str,
    new_block: str,
    Nfile: int,
    *,
    dtype: DTypeLike | None = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block of a tree to a new block with another number of data files.

    Parameters
    ----------
    dtype
        Another type for the items; they are converted.
    progress
        Called with the number of bytes of each piece that has been read.
    """
    return copy(
        file, block, file, new_block, Nfile=Nfile, dtype=dtype, progress=progress
    )


def copy(
    source: File,
    block: str,
    target: File,
    new_block: str | None = None,
    *,
    Nfile: int | None = None,
    dtype: DTypeLike | None = None,
    progress: Progress | None = None,
) -> Column:
    """Copy a block with its attributes, to another name or to another tree.

    Parameters
    ----------
    new_block
        The name of the copy; by default that of the block.
    Nfile
        The number of data files; by default that of the block.
    dtype, progress
        See `repartition`.
    """
    new_block = block if new_block is None else new_block
    old = source.open(block)
    tree, full = target._tree, target._full(new_block)
    # Two names may lead to one folder, through links or the tree of a group.
    if old._folder == tree.folder(full):
        raise UsageValueError("'%s' would be copied over itself" % block)
    dtype = old.dtype if dtype is None else numpy.dtype(dtype)
    check_convertible(old.dtype, dtype)
    limited = File(tree.path, follow_links=tree.follow_links, nthreads=target._nthreads)
    limited._tree.limits = source._tree.limits_of(old._folder, tree.folder(full))
    if not old.nmemb:
        # Not `full`: a name like ``0/.`` stands for a group.
        new = limited.create(os.path.join(target._group, new_block))
    else:
        nfile, unwritten = old.nfile if Nfile is None else Nfile, old._unwritten()

        def fill(column: Column) -> None:
            for piece in pieces_of(old, TAKEN_NBYTES):
                for start, stop in without([piece], unwritten):
                    rows = old.read(start, stop - start)
                    if progress is not None:
                        progress(rows.nbytes)
                    column.write(start, rows)
                    del rows  # before the next ones are read

        layout = new_header(numpy.dtype((dtype, (old.nmemb,))), old.size, nfile)
        new = limited.create_filled(full, layout, fill, unwritten)
    target.refresh()
    if len(old.attrs):
        new.attrs.copy_from(old.attrs)
    return new
