"""A group: a folder of arrays, tables and groups, by name.

Strategy: each member is a dataset of its own, with its own writer and its own changes.
A group has only its names and attributes. A new member is written beside its name and
renamed; a removed one is renamed first, and then removed. So both happen in one step,
and several processes may change different members of a group.

From the first `Group.change` on, the document of the group commits all that is in it:
the group has one writer, which its members share, and a change of several members is
one commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

from numpy.typing import DTypeLike

from .._commit.change import Change
from .._commit.locking import DROPPED_WAIT, waiting
from .._commit.new_folder import remove_leftovers
from .._commit.pin import DatasetChanged, Pin
from .._commit.tree import TreeState
from .._commit.writer import Block, Writer
from .._compat import import_extra
from .._engine.contexts import errors_to, on_error
from .._engine.forks import NamedLocks, WeakValues
from .._format.grid import Shape
from .._format.names import NoSuchName, is_within
from .._storage.descriptors import NO_MORE
from .._storage.folder_store import FolderStore, StaleDataset
from .._types import Json, Path, StorageOptions
from ..exceptions import (
    BloscpackError,
    FormatError,
    StorageError,
    UsageError,
    UsageTypeError,
    UsageValueError,
)
from ..log import counted
from . import frames, layouts, opening
from .array import Array
from .commit_rules import (
    CommitsMembers,
    Member,
    check_new_path,
    creating_member,
    drop_copies,
    remove_dataset,
    replacing_member,
    writer_for,
)
from .folder import Folder, Joined, attempts, check_member_name, is_member_name
from .items import checked_shape
from .labels import given_attrs
from .layouts.base import GroupLayout
from .node import Node, one_call, reopened
from .table import Table

Kind = TypeVar("Kind", bound=Node)

# Maximum number of members that the repr of a group shows, those inside of members
# included.
SHOWN_MEMBERS = 100
# Errors which say that a dataset was changed or removed meanwhile.
CHANGED = DatasetChanged, StaleDataset
NOT_BUFFERED = (
    "buffered=True is for arrays and tables: 'create_array' and 'create_table' take it"
)
NO_BUFFER = (
    "'%s' is a column, whose table has a buffer: open the table with buffered=True"
)
NOT_SHARED = (
    "the document of '%s' commits all that is in it, and only one program at a time "
    "changes it: open it without shared=True. from_dask can't write a region of it"
)
MANY_LOCKS = (
    "the first change of a group locks all members at once, which needs a file "
    "descriptor for each: this process has no more, see 'ulimit -n'"
)


def open_node(found: layouts.Found, options: opening.Options) -> Array | Table | Group:
    """Open a dataset of any kind."""
    outer = layouts.committing(found) if options.writable else None
    if outer is not None:
        member: Array | Table | Group = _open_committed(*outer, options)
        return member
    if not options.writable:
        found = layouts.as_part(found)
    if options.pinned:
        if found.folder.is_remote:
            raise UsageError(
                "'%s' is at a URL: 'pinned=True' and 'read' of a group are for folders"
                % found.folder.path()
            )
        # With the files of the group around, in one `Pin`.
        tree = found.folder.tree
        tree.attach_pin(tree.pin or Pin(found.folder.path()))
    if found.kind != "group":
        return opening.open_array_or_table(found, options)
    folder = found.folder
    layout = found.open()
    if options.buffered:
        raise UsageValueError("'%s' is a group: %s" % (folder.path(), NOT_BUFFERED))
    if not options.writable:
        return Group(layout, options=options)
    opening.check_changeable(found)
    layout.check_writable()
    if folder.tree.state.members is not None:
        _check_not_shared(folder, options)
    _tidy_up(folder)
    shared, wait = options.shared, options.timeout
    take = partial(writer_for, found, options.sync, shared=shared, wait=wait)
    return Group(layout, waiting(take, options.wait(0)), options)


def open_found(
    find: Callable[[], layouts.Found | None], open_it: Callable[[layouts.Found], Any]
) -> Any:
    """Return what `open_it` makes of what `find` returns; None for None.

    Both are called again if another thread or program has replaced it in between, or
    has let a group commit it.
    """
    seen, left = object(), layouts.MAX_REPLACED
    while found := find():
        left -= 1
        try:
            return open_it(found)
        except (StaleDataset, Joined):
            if not left:
                raise
        except (FormatError, FileNotFoundError):
            if found.folder.is_remote:
                raise
            before, seen = seen, found.folder.seen(found.node_class.document)
            if before == seen:
                raise
    return None


def open_at(
    path: Path,
    storage_options: StorageOptions | None = None,
    options: opening.Options = opening.Options(),  # noqa: B008 - a tuple
) -> Any:
    """Open the dataset at a path or a URL, without the warnings of `dataset.open`."""
    return open_found(
        lambda: layouts.detect(Folder.open(path, storage_options)),
        lambda found: open_node(found, options),
    )


def _tidy_up(folder: Folder) -> None:
    """Remove what writers that have died have left in the folder of a group."""
    around = folder.own_store()
    if isinstance(around, FolderStore):
        remove_leftovers(around)


def _check_not_shared(folder: Folder, options: opening.Options) -> None:
    """Raise `UsageError` if a dataset that a group commits is to have more writers.

    A group that was opened before may commit its members since then.
    """
    if options.shared:
        raise UsageError(NOT_SHARED % folder.store.root)


def _open_committed(outer: layouts.Found, name: str, options: opening.Options) -> Any:
    """Open a part of a table or group for changes, which are closed with it."""
    path = outer.folder.path(name)
    _check_not_shared(outer.folder, options)

    def open_part(owner: Any) -> Any:
        member: Any
        try:
            if isinstance(owner, Table):
                (column,) = (c for c in owner.columns.values() if c.path == path)
                member = column._detached(owner)
            else:
                member = owner[name]
        except (KeyError, ValueError):
            raise outer.folder.damage(
                "expected '%s' in the document that commits it, found none" % name
            ) from None
        if not options.buffered:
            return member
        if isinstance(member, Group):
            raise UsageValueError("'%s' is a group: %s" % (member.path, NOT_BUFFERED))
        if isinstance(member, Array) and member.is_column:
            raise UsageError(NO_BUFFER % member.path)
        member._let_wait()
        return member

    return with_owner(outer, options, open_part)


def with_owner(
    around: layouts.Found, options: opening.Options, open_part: Callable[[Any], Any]
) -> Any:
    """Open a table or group, and return a part of it that closes it.

    `open_part` is called with the former and returns the latter.
    """
    owner = open_node(around, options._replace(buffered=False))
    with on_error(owner.close):
        part = open_part(owner)
        part._around, part._closes_around = owner, True
        return part


def create_group(
    path: Path,
    *,
    layout: str = "zarr",
    attrs: Mapping[str, Json] | None = None,
    mode: str = "x",
    sync: bool = True,
    storage_options: StorageOptions | None = None,
) -> Group:
    """Create a group without members, and return it open for changes.

    Parameters
    ----------
    path
        The folder, which appears when the group is complete; or a URL.
    layout
        ``'zarr'``: the group is one of Zarr format 3.
    attrs
        The attributes.
    mode
        ``'x'`` if there must be no such file or folder, ``'w'`` to replace a dataset,
        also a group with all its members.
    sync, storage_options
        As in `open`.

    Raises
    ------
    FileExistsError
        If there is a file or folder of this name.

    Examples
    --------
    >>> from bloscpack import dataset
    >>> with dataset.create_group('g', attrs={'site': 'A'}) as group:
    ...     array = group.create_array('raw/speed', [1.5, 2.5])
    ...     list(group), group['raw/speed'][0].item()
    (['raw'], 1.5)
    """
    group_layout = layouts.group_class(layout)
    group_layout.check_layout()
    attributes = given_attrs({} if attrs is None else attrs)
    if not isinstance(path, Member):
        check_new_path(path)

    options = opening.Options(writable=True, sync=sync)
    created: Group = opening.created_at(
        *(path, layout, mode, options, storage_options),
        lambda change, prefix: group_layout.create(change, attributes, prefix),
    )
    return created


def make_group(folder: Folder, attrs: Mapping[str, Json] | None, sync: bool) -> None:
    """Make an empty folder, or one with datasets inside of it, a group of Zarr.

    Raises `FormatError` if it has other contents.
    """
    if folder.names("") and layouts.detect(folder).layout != "folder":
        return
    writing = closing(writer_for(layouts.Found(folder, "zarr", "group"), sync))
    with writing as writer, writer.change() as change:
        layouts.group_class("zarr").create(change, given_attrs(attrs or {}))


def is_inside(path: str, address: str) -> bool:
    """Return whether `path`, a path or a URL, is `address` or inside of it."""
    path, address = path.replace(os.sep, "/"), address.replace(os.sep, "/")
    return is_within(path, address.rstrip("/"))


class OpenMembers(NamedLocks):
    """The members of a group, and of the groups in it, that are open for changes.

    A second writer could not open them. One thread at a time opens, creates or removes
    a member; different members do not wait for each other.
    """

    def __init__(self, is_remote: bool) -> None:
        # By path. At a URL they stay open: each new writer claims the document.
        self._opened: dict[str, Any] | WeakValues = {} if is_remote else WeakValues()
        super().__init__()

    @contextmanager
    def closed_at(self, address: str) -> Iterator[None]:
        """Close the members at a path and inside of it, which the block replaces.

        The other threads are kept away.
        """
        closed: list[Node] = []
        while True:
            closed += self.inside(address)
            # Outside of the lock: a change that a member waits for may use the group.
            self.close(address)
            with self.at(address):
                if not self.inside(address):
                    yield
                    break
        for member in closed:
            member._opened.close(is_retired=True)

    def get(self, address: str) -> Any:
        """Return the member at a path; None if it is not open."""
        with self._adding:
            member = self._opened.get(address)
        return None if member is None or member.closed else member

    def put(self, address: str, member: Node) -> None:
        """Note that a member is open."""
        with self._adding:
            self._opened[address] = member

    def renew(self, writer: Writer, before: TreeState | None) -> None:
        """Take over what has changed in a group, which has a writer, since a state."""
        tree = writer.rule.tree
        now = tree.state
        old, new = (before and before.members) or {}, now.members or {}
        changed = {path for path in {*old, *new} if old.get(path) != new.get(path)}
        if before is None or before.root.content != now.root.content:
            changed.add("")  # the group itself
        for member in self.inside():
            if member._opened.view.folder.tree is tree:
                member._renew(changed)

    def join(self, writer: Writer) -> None:
        """Let the writer of a group change the members that its document commits."""
        tree = writer.rule.tree
        group = Folder(tree.store, "", tree)
        members = self.inside(group.address_of()[0])
        if all(member._writer is writer for member in members):
            return
        paths = {group.address_of(n)[0]: n for n in tree.state.members or ()}
        for member in members:
            path = paths.get(member._opened.view.folder.address_of()[0])
            if path is not None and member._writer is not writer:
                member._join(writer, group.child(path))

    def inside(self, address: str | None = None) -> list[Node]:
        """Return the members that are open for changes, at a path and inside of it.

        Without a path, these are all.
        """
        with self._adding:
            known = list(self._opened.items())
        members = [m for p, m in known if address is None or is_inside(p, address)]
        return [m for m in members if m._writer is not None and not m.closed]

    def close(self, address: str) -> None:
        """Close the members at a path and inside of it."""
        with ExitStack() as stack:
            for member in reversed(self.inside(address)):
                stack.callback(member.close)


class Group(Node, Mapping[str, Node]):
    """Arrays, tables and groups in a folder, by name; `open_group` makes it.

    ``group['a/b']`` is the member ``b`` of the group ``a``, or a column ``b`` of the
    table ``a``. Iterating yields the names of the members, sorted.

    A member of a group that is open for changes is open for changes, too, if its layout
    can be changed: until it is closed or no longer in use, no other writer can open it.

    Attributes
    ----------
    path
        The folder.
    layout
        The name of the layout; ``'folder'`` for a plain folder with datasets inside of
        it, which can only be read.
    """

    def __init__(
        self,
        layout: GroupLayout,
        writer: Writer | None = None,
        options: opening.Options = opening.Options(),  # noqa: B008 - a tuple
    ) -> None:
        super().__init__(layout, writer)
        self._options = options
        folder = layout.folder
        if writer is not None and not folder.prefix:
            writer.views = OpenMembers(folder.is_remote)
            self._members.put(folder.address_of()[0], self)

    @property
    def _members(self) -> Any:
        """The members of all its groups that are open, if it has a writer."""
        return None if self._writer is None else self._writer.views

    def flush(self) -> None:
        """Write what waits in memory of all members that are open for changes."""
        writer, folder = self._check_writer("flush"), self._opened.view.folder
        with ExitStack() as stack:  # an error of one does not stop the others
            for member in self._members.inside(folder.address_of()[0]):
                if member._writer is not writer:
                    stack.callback(Node.flush, member)
            writer.settle()
            writer.flush()

    def close(self) -> None:
        """Close the group, and its members that are open for changes.

        The changes of other threads are made first.
        """
        view = self._opened.view
        writer, call = view.writer, "leave" if view.folder.prefix else "close"
        closing = nullcontext() if writer is None else writer.closing(call)
        with ExitStack() as stack, closing:  # an error of one does not stop the others
            self._now.closed = True
            stack.callback(super().close)
            if writer is not None:
                stack.callback(self._members.close, view.folder.address_of()[0])

    # Members

    def __getitem__(self, key: str) -> Any:
        """Return a member, opened as the group was.

        Parameters
        ----------
        key
            A name, or several with slashes between them.

        Raises
        ------
        KeyError
            If there is no such member.
        FormatError
            If the description of the member is damaged.
        StorageError
            If the group is open for changes, and another writer has opened the member.
        """
        first, _, rest = self._checked_key(key).partition("/")
        if not is_member_name(first):
            raise self._no_member(key)
        folder, writer = self._layout.folder, self._writer
        address, wait = folder.address_of(first)[0], self._options.wait(DROPPED_WAIT)

        def open_it(found: layouts.Found) -> Any:
            block, options = self._block, self._options
            opened = None if block is None else block.opened.get(address)
            if opened is None and writer is not None:
                opened = self._members.get(address)
            if opened is not None:
                return opened
            in_child = writer is not None and not writer.is_here
            if not found.node_class.writable or in_child:
                options = options._replace(writable=False)
            opening_it = partial(open_node, found, options)
            if found.folder.prefix and options.writable:  # by the group's writer
                opening_it = partial(_open_part, found, writer, options)
            return self._adopted(first, waiting(opening_it, wait))

        with nullcontext() if writer is None else self._members.at(address):
            member = open_found(lambda: layouts.find_member(folder, first), open_it)
        if member is None or (rest and isinstance(member, Array)):
            raise self._no_member(key)
        if not rest:
            return member
        try:
            inner = member[rest]
        except KeyError:
            raise self._no_member(key) from None
        if isinstance(member, Table):
            return inner._detached(member)
        return inner

    def _no_member(self, key: str) -> NoSuchName:
        folder = self._layout.folder  # which can be read when the group is closed
        return NoSuchName(key, self.path, lambda: dict(layouts.find_members(folder)))

    def _look(self) -> None:
        """Read what other programs have changed, if they may have changed it."""
        if self._writer is not None and self._block is None and self.commits_members:
            self._present()

    def _present(self) -> TreeState:
        """Read the documents again; return their present state."""
        tree = self._opened.view.folder.tree
        return tree.read() if tree.store.is_remote else tree.renew()

    def _checked_key(self, key: object) -> str:
        self._ask("read")
        if not isinstance(key, str):
            raise KeyError("expected the name of a member, found %r" % (key,))
        return key.strip("/")

    def _adopted(self, name: str, member: Kind) -> Kind:
        """Note that a member was opened or created, and return it."""
        writer, own = self._writer, member._writer
        part = member._layout.folder.prefix[:-1]  # makes its draft, too
        if own is not None and own is not writer:
            if part and self._present().members is not None:  # the group commits it now
                member.close()
                return cast(Kind, self[name])
            own.outer = writer
        if isinstance(member, Group) and own is not None:
            own.views = self._members
        member._around = self if writer is not None else self._around
        block, path = self._block, self._layout.folder.address_of(name)[0]
        if block is not None and part and block.has_created(part):
            block.opened[path] = member  # other threads do not see it yet
        elif writer is not None:
            self._members.put(path, member)
        return member

    def __contains__(self, key: object) -> bool:
        """Return whether there is a member, without opening it for changes."""
        if not isinstance(key, str):
            return False
        self._look()
        folder, rest = self._layout.folder, self._checked_key(key)
        while True:
            first, _, rest = rest.partition("/")
            found = layouts.find_member(folder, first)
            if found is None or not rest:
                return found is not None
            if found.kind != "group":
                return found.kind == "table" and rest in found.open().columns
            folder, rest = found.folder, rest.lstrip("/")

    def __iter__(self) -> Iterator[str]:
        self._checked_key("")
        self._look()
        folder, is_empty = self._layout.folder, True
        for name, _ in layouts.find_members(folder):
            is_empty = False
            yield name
        if is_empty:  # a writer may have removed or replaced it
            folder.check_name()

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens the group again, in any process, for reading."""
        return reopened, (Group, self._layout)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        title = "<%s>" % self._title()
        if self.closed or not self._layout.folder.store.lists:
            return title
        return "\n".join([title, *shown_members(self._layout.folder, SHOWN_MEMBERS)])

    def tree(self) -> str:
        """Return a line for each member, and for those inside of members."""
        return Lines("\n".join([self.name, *shown_members(self._layout.folder)]))

    def read(self, names: Collection[str]) -> dict[str, Any]:
        """Return the items of several arrays and tables, all of one state.

        The members are read again until no other program has changed them meanwhile.
        Items that wait in memory are written first.

        Parameters
        ----------
        names
            The names of members, as for ``group[name]``.

        Raises
        ------
        KeyError
            If there is no member of one of the names.
        UsageError
            If a member is a group, or its layout has no ``pinned=True``; see `open`.
        StorageError
            If other programs change the group again and again.

        Examples
        --------
        >>> from bloscpack import dataset
        >>> with dataset.create_group('week') as group:
        ...     group['day'], group['rain'] = [1, 2], [0.5, 0]
        ...     group.read(['day', 'rain'])
        {'day': array([1, 2]), 'rain': array([0.5, 0. ])}
        """
        if isinstance(names, (str, bytes)):
            raise UsageTypeError("expected a list of names, found %r" % names)
        self._checked_key("")
        names = [*names]
        if self._block is not None or self._layout.folder.tree.pin is not None:
            return {name: _items(self[name]) for name in names}
        if self._writer is not None:
            self.flush()
        folder, allow_pickle = self._layout.folder, self._options.allow_pickle
        options = opening.Options(allow_pickle, pinned=True)
        for _ in attempts(self.path):
            pin: Pin | None = None
            found = layouts.detect(folder.again())
            try:
                group: Any = open_node(found, options)
                pin = group._layout.folder.tree.pin
                with pin.at_end():
                    return {name: _items(group[name]) for name in names}
            except (BloscpackError, OSError, KeyError) as error:
                has_changed = pin is not None and (
                    isinstance(error, FileNotFoundError) or pin.has_changed
                )
                if not (has_changed or isinstance(error, CHANGED)):
                    raise
        raise AssertionError

    def to_xarray(self, **options: object) -> Any:
        """Return the arrays of the group as a dataset of xarray, which reads them.

        `options` are those of ``xarray.open_dataset``: ``chunks={}`` for arrays of
        Dask, say. Tables and groups in the group are left out.

        Raises
        ------
        UsageError
            If xarray is not installed.
        """
        xarray = import_extra("xarray", "xarray")
        return xarray.open_dataset(self, engine="bloscpack", **options)

    # Changing

    def trim(self, dim: str) -> None:
        """Cut the arrays of the group to the length of the shortest, in one `change`.

        Another program appends to one array after the other: if it dies in between, the
        arrays that it has reached are longer. Groups and tables in the group stay.

        Parameters
        ----------
        dim
            The dimension along which the arrays are cut.

        Raises
        ------
        UsageError
            If no array has the dimension, or an array that is too long can't be
            changed, or has it twice; or if an array is empty: all would be empty.

        Examples
        --------
        >>> from bloscpack import dataset
        >>> with dataset.create_group('hours') as group:
        ...     hour = group.create_array('hour', [1, 2, 3], dims=['hour'])
        ...     wind = group.create_array('wind', [3.5, 4], dims=['hour'])
        ...     group.trim('hour')
        ...     group['hour'].shape, group['wind'].shape
        ((2,), (2,))
        """
        self._check_writer()
        if self._trimmed(dim):  # an error changes nothing
            with self.change():
                for name, shape in self._trimmed(dim).items():
                    self[name].resize(shape)

    def _trimmed(self, dim: str) -> dict[str, Shape]:
        """Return the new shapes of the arrays that are too long; see `trim`."""
        members = layouts.find_members(self._layout.folder, skip_unreadable=False)
        names = [name for name, inner in members if inner.kind == "array"]
        arrays = {n: a for n in names if dim in ((a := self[n]).dims or ())}
        if not arrays:
            raise UsageValueError(
                "no array of the group '%s' has the dimension '%s'" % (self.path, dim)
            )
        lengths = {name: a.shape[a.dims.index(dim)] for name, a in arrays.items()}
        least, shapes = min(lengths.values()), dict[str, Shape]()
        for name, array in arrays.items():
            if lengths[name] == least:
                continue
            if not least:
                empty = min(lengths, key=lambda name: lengths[name])
                raise UsageValueError(
                    "'%s' has no items along '%s', and no array would have any: remove "
                    "it, or append to it" % (empty, dim)
                )
            if array.dims.count(dim) > 1:
                raise UsageValueError("'%s' has the dimension '%s' twice" % (name, dim))
            array._check_writer()
            axis = array.dims.index(dim)
            shapes[name] = (*array.shape[:axis], least, *array.shape[axis + 1 :])
        return shapes

    def create_array(self, name: str, data: object = None, **options: object) -> Array:
        """Create an array in the group; `options` are those of ``create_array``.

        Groups that the name contains are created, too.
        """
        return self._created(opening.create_array, name, data, **options)

    def create_table(self, name: str, data: object = None, **options: object) -> Table:
        """Create a table in the group; `options` are those of ``create_table``.

        Groups that the name contains are created, too.
        """
        return self._created(opening.create_table, name, data, **options)

    def create_group(self, name: str, **options: object) -> Group:
        """Create a group in the group; `options` are those of ``create_group``.

        Groups that the name contains are created, too.
        """
        return self._created(create_group, name, **options)

    def require_group(self, name: str, **options: object) -> Group:
        """Return the group of this name; create it if there is none.

        Raises `UsageError` if the member is an array or a table.
        """
        return self._required(Group, name, lambda: self.create_group(name, **options))

    def require_array(
        self, name: str, shape: int | Shape, dtype: DTypeLike, **options: object
    ) -> Array:
        """Return the array of this name; create it if there is none.

        `options` are those of ``create_array``. Raises `UsageError` if the member is no
        array, or has another shape or dtype.
        """
        given = {"shape": shape, "dtype": dtype, **options}
        array = self._required(Array, name, lambda: self.create_array(name, **given))
        expected = checked_shape(shape), dtype
        if (array.shape, array.dtype) != expected:
            raise UsageValueError(
                "'%s': expected the shape %s and the dtype '%s', found %s and '%s'"
                % (array.path, *expected, array.shape, array.dtype)
            )
        return array

    def _required(
        self, wanted: type[Kind], name: str, create: Callable[[], Kind]
    ) -> Kind:
        self._check_writer("assign")  # with shared=True, a member may be found
        node: Any
        try:
            node = self[name]
        except KeyError:
            with suppress(FileExistsError):  # another thread or process has created it
                return create()
            node = self[name]
        if not isinstance(node, wanted):
            raise UsageTypeError("'%s' is no %s" % (node.path, wanted.__name__.lower()))
        return node

    @one_call
    def __setitem__(self, name: str, values: object) -> None:
        """Create a member, or replace the array or table of this name.

        A dictionary of columns, a DataFrame or a structured array becomes a table.
        """
        if isinstance(self.get(name), Group):
            raise UsageValueError("'%s' is a group: remove it first" % name)
        if isinstance(values, (Table, Group)):
            raise UsageTypeError(
                "expected an array or columns, found '%s': dataset.convert copies "
                "tables and groups" % values.path
            )
        rows = frames.columns_of(values)
        names = getattr(getattr(rows, "dtype", None), "names", None)
        is_table = names is not None or isinstance(rows, Mapping)
        (self.create_table if is_table else self.create_array)(name, values, mode="w")

    @one_call
    def _created(
        self, create: Callable[..., Kind], name: str, *data: object, **options: object
    ) -> Kind:
        """Create a member and return it."""
        *outer, last = name.split("/") if isinstance(name, str) else [name]
        for part in (*outer, last):
            check_member_name("member", part)
        if outer:
            group = self.require_group("/".join(outer))
            return group._created(create, last, *data, **options)
        folder = self._layout.folder
        address, storage_options = folder.address_of(last)
        options.setdefault("sync", self._options.sync)
        options["storage_options"] = storage_options
        replaces = options.get("mode") == "w"
        data = tuple(self._source(item, address if replaces else None) for item in data)
        is_known = folder.store.can_rename or options.get("layout", "zarr") == "zarr"
        if self.commits_members and is_known:
            return create(Member(address, partial(self._add, last)), *data, **options)
        self._check_writer().check_outside(folder.path(last))
        folder.check_name()  # another group may have got it
        members, place = self._members, Member(address, None, self._options.timeout)
        try:
            with members.closed_at(address) if replaces else members.at(address):
                created = self._adopted(last, create(place, *data, **options))
        except CommitsMembers:
            if self._present().members is None:
                raise
            return self._created(create, last, *data, **options)  # it does so by now
        if self.closed:
            created.close()
        return created

    def _source(self, data: object, replaced: str | None) -> object:
        """Return the data of a new member; `replaced` is the path of the old one.

        An array, or a column, that is replaced is read before: it is closed then.
        """
        if isinstance(data, dict):
            return {name: self._source(data[name], replaced) for name in data}
        if isinstance(data, Node) and data._writer is not None:
            data.flush()  # the rows that wait are not counted yet
        if replaced is None or not isinstance(data, Array):
            return data
        return data[...] if is_inside(data.path, replaced) else data

    def _add(
        self,
        name: str,
        layout: str,
        mode: str,
        create: Callable[[Change, str], object],
        buffered: bool = False,
    ) -> Any:
        """Create a member, or replace one that the document commits; return it.

        `create` writes it for a change. If no group commits datasets of its `layout`,
        or of the layout of the one that it replaces, it is written beside that.
        """
        check_member_name("member", name)
        writer, folder = self._check_writer(), self._layout.folder
        address, close = folder.address_of(name)[0], partial(self._retire, name)
        with writer.turn():
            old = layouts.find_member(folder, name) if mode == "w" else None
            is_other = old is not None and not old.folder.prefix
            if layout != "zarr" or (is_other and folder.store.can_rename):
                writer.check_outside(folder.path(name))
                inside = self._members.inside(address)
                apart = [each for each in inside if each._writer is not writer]
                for member in apart:
                    member.close()
                wait = self._options.wait(DROPPED_WAIT)
                how = name, mode, self._options.sync, wait, close
                with self._members.at(address):
                    with replacing_member(writer, folder, *how) as change:
                        create(change, "")
                    for member in apart:
                        member._opened.close(is_retired=True)
                    if layout == "zarr":
                        self._unite(name)
            else:
                with self._joined() as block:
                    with creating_member(writer, folder, name, mode, close) as change:
                        create(change, folder.full(name) + "/")
                    block.created.add(folder.full(name))
            made = self[name]
        if buffered:
            made._let_wait()
        return made

    @one_call
    def __delitem__(self, key: str) -> None:
        """Remove a member and all inside of it, in one step.

        Raises ``KeyError`` if there is none, and `StorageError` if a writer has opened
        it, or a member of it. At a URL there are no locks: a writer that has opened it
        is not noticed, and its next change fails.
        """
        outer, _, last = self._checked_key(key).rpartition("/")
        owner = self[outer] if outer else self
        if isinstance(owner, Array):
            raise self._no_member(key)
        if isinstance(owner, Table):
            owner.remove_column(last)
        elif owner is not self:
            del owner[last]
        elif last not in self:
            raise self._no_member(key)
        elif self._layout.folder.full(last) in self._committed():
            self._remove_part(last)
        else:
            folder, sync = self._layout.folder, self._options.sync
            self._check_writer().check_outside(folder.path(last))
            try:
                with self._members.closed_at(folder.address_of(last)[0]):
                    if last not in self:  # another thread has removed it
                        raise self._no_member(key)
                    drop_copies(folder)
                    remove = partial(remove_dataset, folder, last, sync)
                    waiting(remove, self._options.wait(DROPPED_WAIT))
            except CommitsMembers:  # another thread has just let the group do so
                self._remove_part(last)

    # Members that the document of the group commits

    def _committed(self) -> Mapping[str, Json]:
        """Return the documents of these members, by their names in the outer group."""
        return self._layout.folder.tree.state.members or {}

    @property
    def commits_members(self) -> bool:
        """Whether the document of the group, or of an outer one, commits its members.

        Then it has one writer at a time, and `change` has been used.
        """
        return self._layout.folder.tree.state.members is not None

    @contextmanager
    def change(self) -> Iterator[Group]:
        """Let all changes in the block be one: in a crash all of them happen, or none.

        The block reads what it has changed; other threads read the state before, and
        wait to change the group. A member that the document does not commit, of another
        layout than ``'zarr'`` say, can't be changed in the block.

        The first use lets the document of the group commit the members from now on,
        those of groups inside of it, too. From then on, each change of a member locks
        the group for its length.

        Raises
        ------
        UsageError
            If one of the changes failed: then nothing is changed. Also if the group was
            opened for reading.
        StorageError
            If another writer has opened the group or a member.

        Examples
        --------
        >>> from bloscpack import dataset
        >>> with dataset.create_group('days') as group:
        ...     day = group.create_array('day', [1, 2])
        ...     rain = group.create_array('rain', [0.5, 0])
        ...     with group.change():
        ...         group['day'].append([3])
        ...         group['rain'].append([2.5])
        ...     len(group['day']), len(group['rain'])
        (3, 3)
        """
        writer = self._check_writer()
        if self._block is None:
            with writer.turn():
                if not self.commits_members:
                    self._unite()
        with writer.together(self._end_block):
            yield self

    @contextmanager
    def _joined(self) -> Iterator[Block]:
        """Let the changes in the block be one, or a part of the one that is made."""
        writer, block = self._check_writer(), self._block
        with nullcontext(block) if block else writer.together(self._end_block) as joint:
            yield joint

    def _end_block(self, block: Block) -> None:
        """Let all that is open have the state after a block."""
        tree, settled = self._opened.view.folder.tree, set[int]()
        known = list(block.drafts.values())
        for node, draft in sorted(known, key=lambda pair: isinstance(pair[0], Array)):
            if id(node._opened) not in settled:
                node._settle(block, draft, tree)
            columns = (node._opened.view.columns or {}).values()  # of a table
            settled.update(id(column._opened) for column in columns)
        for address, member in block.opened.items():
            if not member.closed:
                self._members.put(address, member)
        for array in block.shrunk if block.change.is_committed else ():
            is_there = block.layouts.get(array.folder.prefix) is array
            if is_there:
                array.remove_unused()

    def _retire(self, name: str) -> None:
        """Close what is open of a member that is removed or replaced."""
        writer, folder = self._check_writer("info"), self._layout.folder
        block, members = self._block, self._members
        address, prefix = folder.address_of(name)[0], folder.full(name) + "/"
        opened = {} if block is None else block.opened
        inside = [path for path in opened if is_inside(path, address)]
        new = [opened.pop(path) for path in inside]
        for member in [*members.inside(address), *new]:
            if member._writer is writer:
                member._now.close(is_retired=True)
        known: list[dict[str, Any]] = [writer.buffers]
        if block is not None:
            known.append(block.layouts)
        for each in known:
            for path in [path for path in each if (path + "/").startswith(prefix)]:
                del each[path]

    def _unite(self, name: str = "") -> None:
        """Let the document commit the members from now on, also those that are open.

        With a `name`, that member alone, which is not open, and not committed yet.
        """
        writer, folder = self._check_writer(), self._layout.folder
        locked: list[Node] = []
        with ExitStack() as held:

            def take(member: layouts.Found) -> None:
                known = self._members.get(member.folder.address_of()[0])
                if known is None:
                    with ExitStack() as new:
                        own = writer_for(member, self._options.sync, wait=0)
                        new.enter_context(closing(own))
                        new.enter_context(own.turn())
                        own.rule.claim()
                        held.enter_context(new.pop_all())
                    return
                try:
                    own = known._check_writer("info")
                    held.enter_context(own.turn())
                except UsageValueError:
                    if not known.closed:
                        raise
                    take(member)  # another thread has closed it
                    return
                locked.append(known)
                member.folder.check_name()  # it is not one that this program replaced
                known.flush()
                own.rule.claim()

            def hold(member: layouts.Found) -> None:
                # Another thread may be opening it: wait until it is in `_members`.
                usual = max(DROPPED_WAIT, writer.rule.wait)
                waiting(partial(take, member), self._options.wait(usual))

            def fail(error: Exception) -> None:
                held.close()  # discarding the change may need a descriptor
                if isinstance(error, OSError) and error.errno in NO_MORE:
                    raise StorageError(error.errno, MANY_LOCKS, self.path) from None

            def join() -> None:
                self._members.join(writer)

            try:
                with writer.change(join) as change, errors_to(fail):
                    layouts.load("zarr.unite")(change, folder, hold, name)
            finally:  # the document may commit them
                for node in locked if writer.rule.has_failed else ():
                    if node._writer is not None:
                        node._writer.rule.has_failed = True

    def _remove_part(self, name: str) -> None:
        """Remove a member, and all inside of it, that the document commits."""
        with self._joined():
            full = self._layout.folder.full(name)
            if full not in self._committed():  # another thread has removed it
                raise self._no_member(name)
            self._retire(name)
            with self._check_writer().change() as change:
                change.remove_member(full)


def _items(member: Any) -> Any:
    """Return all items of an array or a table."""
    if isinstance(member, Group):
        raise UsageTypeError("'%s' is a group: read its members" % member.path)
    return member[...] if isinstance(member, Array) else member[:]


def _open_part(
    found: layouts.Found, writer: Writer | None, options: opening.Options
) -> Array | Table | Group:
    """Open a member, which the writer of the group changes."""
    _check_not_shared(found.folder, options)
    if found.kind == "group":
        _tidy_up(found.folder)
        return Group(found.open(), writer, options)
    layout = found.open(options.allow_pickle)
    if found.kind == "table":
        return Table(layout, writer)
    layout.check_writable()
    return Array(layout, writer)


class Lines(str):
    """A text of several lines, which the prompt of Python shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def shown_members(folder: Folder, most: int | None = None) -> list[str]:
    """Return a line for each member of a group, and for those inside of members."""
    lines = _member_lines(folder, "  ")
    shown = [*islice(lines, most)]
    return [*shown, *("  ..." for _ in islice(lines, 1))]


def _member_lines(folder: Folder, indent: str) -> Iterator[str]:
    members = dict(layouts.find_members(folder))
    width = max(map(len, members), default=0)
    for name, found in members.items():
        _, layout, kind = found
        about = "%s (%s)" % (kind, layout)
        try:
            if kind == "array":
                array = found.open()
                about += ": shape %s, dtype %s" % (array.shape, array.dtype)
            elif kind == "table":
                columns = found.open().columns
                count = min((c.shape[0] for c in columns.values()), default=0)
                about += ": %s of %s" % (counted(count, "row"), ", ".join(columns))
            elif layout == "zarr":
                about = kind
        except (BloscpackError, OSError):
            about += ", which can't be opened"
        yield "%s%s  %s" % (indent, name.ljust(width), about)
        if kind == "group":
            yield from _member_lines(found.folder, indent + "  ")
