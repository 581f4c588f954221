"""What an open array, table or group has: its path, its writer and its attributes.

Strategy of the attributes: the file is read when an attribute is first used, and
replaced as a whole by each change. A value that JSON can't represent is refused before
anything is written. The values are never changed in place: a thread that reads them has
one state.
"""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial, wraps
from types import ModuleType
from typing import Any, TypeVar, cast

from .._arrays.stored import StoredRows
from .._commit.states import ALONE, FRESH, NOW, Does, ask
from .._commit.tree import Draft, Tree, TreeState
from .._commit.writer import Block, Writer
from .._compat import import_extra
from .._engine.forks import WeakValues
from .._format.zarr_metadata import encode_attributes
from .._storage.folder_store import StaleDataset
from .._types import Json, JsonObject
from ..exceptions import FormatError, StorageError, UsageError
from ..serializers import parse_json
from .description import DatasetInfo
from .folder import Folder, Joined, attempts, rows_removed
from .layouts import Found, as_part, find_any, find_member
from .layouts.base import ArrayLayout, NodeLayout
from .write_buffer import WriteBuffer

Self = TypeVar("Self", bound="Node")

Result = TypeVar("Result")

Method = TypeVar("Method", bound=Callable[..., Any])


def reopened(node_class: Any, layout: NodeLayout, rows: tuple[int, ...] = ()) -> Any:
    """Return a dataset that was pickled; raise `StorageError` if it has lost rows.

    `rows` has the number of rows that it had; it is empty if there are no rows.
    """
    node = node_class(layout)
    if rows and node.shape[:1] < rows:
        raise StorageError(
            errno.ESTALE,
            "expected at least '%d' rows, found '%d': a writer has removed some"
            % (*rows, len(node)),
            node.path,
        )
    return node


def import_dask(name: str) -> ModuleType:
    """Return a module of Dask; raise `UsageError` if it is not installed."""
    return import_extra(name, "dask")


def one_call(method: Method) -> Method:
    """Make a method one call of a block: an error in it lets the whole block fail.

    It waits for the changes of other threads and, in a group that commits its members,
    keeps other programs from changing it.
    """

    @wraps(method)
    def called(self: Node, *args: Any, **options: Any) -> Any:
        waits = self._block is not None or getattr(self, "commits_members", True)
        with self._turn() if waits else nullcontext(self._check_writer()):
            return method(self, *args, **options)

    return cast(Method, called)


def _refuse(is_retired: bool, folder: Folder) -> object:
    """Raise the error of a dataset that is closed, instead of opening its files."""
    why = partial(_why_closed, folder, is_retired)
    return ask("read", None, folder.path(), True, why)


def _why_closed(folder: Folder, is_retired: bool) -> str:
    """Return why a dataset is closed, if a change has removed or replaced it."""
    if not is_retired:
        return ""
    outer, _, name = folder.prefix[:-1].rpartition("/")
    found = None
    with suppress(FormatError, UsageError, OSError):
        if name:
            prefix = outer + "/" if outer else ""
            found = find_member(Folder(folder.store, prefix, folder.tree), name)
        else:
            found = find_any(Folder.open(*folder.address_of()))
    if found is None:
        return ", because it was removed"
    what = "an array" if found.kind == "array" else "a " + found.kind
    return ", because %s of the layout '%s' has replaced it" % (what, found.layout)


class View:
    """What is known of an open array, table or group at one moment.

    Another one replaces it as a whole, so that no thread takes parts of two states
    for one: the files of a member, with the writer of the group that commits it now.

    Attributes
    ----------
    writer
        The right to change it; None for reading.
    folder
        Its folder.
    open
        Opens its files in a folder.
    layout
        Its files, which are opened when they are used.
    columns
        The columns of a table, when they have been used.
    values
        The attributes under the key "known", once they are read. `setdefault` does not
        replace the values of a change by another thread.
    """

    layout: Any
    columns: Any = None

    def __init__(
        self, writer: Writer | None, folder: Folder, open_it: Any, layout: Any = None
    ) -> None:
        self.writer, self.folder, self.open = writer, folder, open_it
        self.values: dict[str, JsonObject] = {}
        if layout is not None:
            self.layout = layout

    @property
    def has_layout(self) -> bool:
        """Whether the files were used."""
        return "layout" in vars(self)

    def __getattr__(self, name: str) -> Any:
        """Open the files; of two threads, the first one does it for both."""
        if name != "layout":
            raise AttributeError(name)
        return vars(self).setdefault(name, self.open(self.folder))


class Opened:
    """What is open of an array, a table or a group; its objects share it.

    Attributes
    ----------
    view
        The present one: all that is known of it.
    closed
        Whether it was closed.
    is_retired
        Whether a change has closed it, which has removed or replaced it.
    """

    closed = is_retired = False

    def __init__(self, layout: NodeLayout, writer: Writer | None = None) -> None:
        self.view = View(writer, layout.folder, layout.__reduce__()[0], layout)

    def open_again(self, like: NodeLayout, tree: Tree, draft: View) -> None:
        """Open the files of the state that a tree has, when they are used."""
        before, folder = self.view, Folder(like.folder.store, like.folder.prefix, tree)
        folder.node = like.folder.node  # another one is not taken for it
        view = View(before.writer, folder, before.open)
        view.values = draft.values
        if draft.columns is not None:
            view.columns = {**(before.columns or {}), **draft.columns}
        self.view = view
        if before.has_layout and before.layout is not like:
            before.layout.close_files()

    def close(self, is_retired: bool = False) -> None:
        """Let its objects be closed, and close the files."""
        self.closed, view = True, self.view
        self.is_retired |= is_retired
        view.open = partial(_refuse, is_retired)
        for array in view.layout.arrays().values() if view.has_layout else ():
            array.reader.closed = True
            array.close_files()
        for column in (view.columns or {}).values():
            column._now.close(is_retired)


class OpenNodes:
    """The array or table that a writer changes, and its columns, as long as in use."""

    def __init__(self) -> None:
        self._nodes = WeakValues()

    def put(self, node: Node) -> None:
        """Note that there is an object."""
        self._nodes[node._part] = node

    def _present(self) -> list[Node]:
        """Return the array or table, or the columns of a table that was dropped."""
        node = self._nodes.get("")
        columns = [column for _, column in self._nodes.items()]
        nodes = columns if node is None else [node]
        return [each for each in nodes if not each.closed]

    def arrays(self) -> list[ArrayLayout]:
        """Return the arrays of which there are objects."""
        return [a for n in self._present() for a in n._layout.arrays().values()]

    def renew(self, writer: Writer, before: TreeState | None) -> None:
        """Take over the state of the files after a commit that was interrupted."""
        with ExitStack() as stack:  # an error of one does not stop the others
            for node in self._present():
                stack.callback(self._renew, node)

    @staticmethod
    def _renew(node: Node) -> None:
        arrays = node._layout.arrays().values()
        if not any(array.may_wait and array.waiting for array in arrays):
            node._take_layout(node._reopened())
            return
        for array in arrays:  # some of the items that waited were being written
            array.committed(array.shape)

    def join(self, writer: Writer) -> None:
        """Do nothing: the document commits no members."""


class Node:
    """An array, a table or a group in a folder."""

    def __init__(self, layout: NodeLayout, writer: Writer | None = None) -> None:
        self._opened = Opened(layout, writer)
        tree = layout.folder.tree
        if writer is not None and writer.rule.state is ALONE:
            writer.views = writer.views or OpenNodes()
            writer.views.put(self)
        if isinstance(tree, Draft):  # others must not see this state
            self._opened.open_again(layout, tree.before, self._opened.view)
            if self._block is not None:
                self._block.layouts[layout.folder.prefix] = layout
        self.path: str = layout.folder.path()
        self.layout: str = layout.name
        # `Root.epoch` of the state that the open files belong to.
        self._read_epoch = tree.state.root.epoch
        # The table or group through which it was opened, and whether to close that.
        self._around: Node | None = None
        self._closes_around = False

    @property
    def _now(self) -> Opened:
        """What this thread knows: in a block, as the block leaves it."""
        opened, writer = self._opened, self._opened.view.writer
        if writer is None or writer.current is None:
            return opened
        block = writer.block
        if block is None or opened.closed:
            return opened
        known = block.drafts.get(id(opened))
        if known is None:
            known = block.drafts[id(opened)] = self, self._open_draft(block)
        return known[1]

    def _open_draft(self, block: Block) -> Opened:
        """Return what a block knows that uses this for the first time."""
        view = self._opened.view
        folder = view.folder.within(block.change)
        known = block.layouts.get(folder.prefix)
        if known is None:
            known = block.layouts[folder.prefix] = view.open(folder)
        return Opened(known, view.writer)

    def _join(self, writer: Writer, folder: Folder) -> None:
        """Be a member of a group that commits it from now on, with one writer."""
        before, view = self._writer, self._opened.view
        assert before is not None
        if self._part in before.buffers:
            self._let_wait(View(writer, folder, view.open))
        with before.replacing():
            self._take_layout(view.open(folder), writer)
        before.close()

    def _renew(self, changed: Collection[str]) -> None:
        """Take over what another writer has changed.

        `changed` are the paths of documents. Also files of the same names may be other
        ones.
        """
        opened = self._opened
        view, folder = opened.view, opened.view.folder
        if view.has_layout:
            view.layout.close_files()
        if not any((path + "/").startswith(folder.prefix) for path in changed):
            return
        with suppress(FormatError, FileNotFoundError, StaleDataset):
            new = view.open(folder)
            if not view.has_layout or view.layout.is_same(new):
                self._take_layout(new)
                return
        opened.close(is_retired=True)

    def _settle(self, block: Block, draft: Opened, tree: Tree) -> None:
        """Take over the state after a block, in which it was `draft`."""
        opened, path = self._opened, draft.view.folder.prefix
        if block.change.is_committed and not draft.closed:
            opened.open_again(draft.view.layout, tree, draft.view)
        elif block.change.is_committed or block.has_created(path):
            opened.close(draft.is_retired)

    @property
    def _layout(self) -> Any:
        """Its files."""
        return self._now.view.layout

    @property
    def _writer(self) -> Writer | None:
        """The right to change it; None if it was opened for reading."""
        return self._opened.view.writer

    @property
    def _block(self) -> Block | None:
        """The block of `change` that this thread is in."""
        return None if self._writer is None else self._writer.block

    @property
    def attrs(self) -> Attributes:
        """The attributes, which map names to values that JSON can represent.

        Each column of a table has attributes of its own. The dataset stays open as long
        as they are in use.
        """
        return Attributes(self)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path.rstrip("/" + os.sep))

    @property
    def info(self) -> DatasetInfo:
        """The same as `dataset.describe` returns; its repr is a list of all fields."""
        from .description import describe_open

        return self._read(lambda: describe_open(self.name, self._layout), "info")

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._now.closed

    def _title(self) -> str:
        """Return how the repr begins, after the bracket."""
        closed, kind = "closed " if self.closed else "", type(self).__name__
        return "%s%s '%s' (%s)" % (closed, kind, self.path, self.layout)

    def refresh(self) -> None:
        """Take over the changes that other programs have committed.

        A reader may keep items that it has read until then. An array or a table that
        this program alone can change needs no call.
        """
        writer, tree = self._writer, self._opened.view.folder.tree
        with writer.replacing() if writer else tree.replacing.current:
            # A thread that has its turn has taken it over. This does not wait for the
            # end of the turn, which may be long, or wait for this thread.
            has_views = writer and writer.is_here and writer.views is not None
            is_present = writer and has_views and writer.seen is None
            if self._ask("refresh") is FRESH and not is_present:
                folder = self._layout.folder
                try:
                    folder.tree.read()
                    layout = self._reopened()
                except FileNotFoundError as error:
                    raise StaleDataset(self.path) from error
                except FormatError:
                    folder.check_name()  # a writer removes the files one by one
                    raise
                self._take_layout(layout)
                if writer and has_views:
                    writer.renew()  # its members, too
                    writer.seen = tree.state
            self._now.view.values = {}

    def _reopened(self) -> Any:
        """Return the layout, opened again, as a member of a group that commits it now.

        Raises `StorageError` if another dataset is in its place.
        """
        layout = self._layout
        reopen, (folder,) = layout.__reduce__()
        found = Found(folder, layout.name, layout.kind)
        if self._writer is None:
            found = as_part(found)
        new = reopen(found.folder)
        if not layout.is_same(new):
            raise StaleDataset(self.path)
        return new

    def _take_layout(self, layout: Any, writer: Writer | None = None) -> None:
        """Take over these files, and the writer, if one is given."""
        view = self._now.view
        self._now.view = View(writer or view.writer, layout.folder, view.open, layout)

    def _ask(self, call: str, closed: bool | None = None) -> Does:
        """Return what a call does now; raise its error if it is refused.

        `closed` says whether it was closed; None to look.
        """
        writer, now = self._writer, self._now
        is_closed = now.closed if closed is None else closed
        folder = now.view.folder
        why = partial(_why_closed, folder, now.is_retired) if is_closed else str
        try:
            return ask(call, writer, self.path, is_closed, why)
        except UsageError:
            if self._writer is writer:
                raise
            return self._ask(call, closed)  # with the writer of its group

    def _check_writer(self, call: str = "change") -> Writer:
        """Return the writer; raise the error of a call if it is refused."""
        writer = self._writer
        if writer is None and not self.closed:
            outer = None if self._around is None else self._around._writer
            with nullcontext() if outer is None else outer.turn("info", holds=False):
                self._layout.check_writable()  # its error says what to do
        try:
            self._ask(call)
        except UsageError:
            if writer is not None and self.closed:
                writer.flush_rows(self._part)  # if another one has removed it: an error
            raise
        writer = self._writer  # of its group, if it has joined one meanwhile
        assert writer is not None
        return writer

    @contextmanager
    def _turn(self, call: str = "change") -> Iterator[Writer]:
        """Keep the other threads from changing and closing it; yield the writer.

        While this waits for the lock, `Group.change` may give the node the writer of
        the group, whose lock must not be taken inside of the other: a deadlock.
        """
        while True:
            writer = self._check_writer(call)
            writer.check(self.path)
            with writer.lock:
                if self._writer is writer:
                    with writer.turn(call):
                        self._check_writer(call)  # another program may have removed it
                        yield writer
                    return

    def _read(self, function: Callable[[], Result], call: str = "read") -> Result:
        """Return the result of a function that reads items, all of one state."""
        return function() if self._writer is None else self._writer.read(function)

    def flush(self) -> None:
        """Write what waits in memory, and complete a change that was interrupted.

        All programs can read it then. Without ``buffered=True``, each change is in the
        files when it has been made. If writing fails, the changes go on waiting, or are
        lost with an error that says so: another program has resized it, for example.
        """
        writer = self._check_writer("flush")
        writer.settle()
        writer.flush()

    def close(self) -> None:
        """Close it, and let other writers in: until that is done, it is not closed.

        What waits in memory is written, after the change of another thread. If that
        fails, it stays open, unless there can be no second attempt.
        """
        view = self._opened.view
        writer, part = view.writer, view.folder.prefix[:-1]
        call = "leave" if part else "close"
        closing = nullcontext() if writer is None else writer.closing(call)
        with ExitStack() as behind, closing:
            if self._writer is not writer:  # of a group, whose lock has to come first
                behind.callback(self.close)
                return
            try:
                if writer is not None and part:
                    writer.buffers.pop(part, None)
                elif writer is not None:
                    writer.close()
                if not part:
                    view.folder.close()
                if self._around is not None and self._closes_around:
                    self._closes_around = False  # it closes this
                    self._around.close()
            finally:
                self._now.close()

    def _let_wait(self, view: View | None = None) -> None:
        """Let changes wait in memory, as with ``buffered=True``; `view` is the next."""
        view = view or self._opened.view
        writer, folder = view.writer, view.folder
        assert writer is not None
        writer.buffers[folder.prefix[:-1]] = WriteBuffer(writer, folder, view.open)

    @property
    def _part(self) -> str:
        """Its path in the table or group with which it has its writer; '' for none."""
        return self._opened.view.folder.prefix[:-1]

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None or isinstance(error, Exception):
                raise
            raise error from failure  # Ctrl-C stays one


class ItemsNode(StoredRows, Node):
    """An array or a table."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return what opens it again, in any process, for reading."""
        return reopened, (type(self), self._layout, self.shape[:1])

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Return a value that is the same for the same state of the same dataset."""
        if self._writer is not None and self._writer.is_here:
            self._writer.flush()  # the token describes the files
        layout = self._layout
        token = layout.token or layout.folder.version()
        if self._writer is None:
            layout.token = token
        return self.path, self.shape, str(self.dtype), token

    def _read(self, function: Callable[[], Result], call: str = "read") -> Result:
        """Return the result of a function that reads items, all of one state.

        Items that have files of their own, as columns have, are read again if another
        program has committed a change of several files meanwhile. `ShardFiles.load`
        compares the files of one array.
        """
        writer = self._writer
        sees = self._ask(call, self._now.closed)  # columns ask themselves
        if sees is FRESH:
            self._layout.renew()
            if self._ask("info") is not sees:  # another thread has closed it
                self._now.close()
        try:
            is_one = sees in (NOW, FRESH) or not self._has_parts
            if not (is_one or self._layout.folder.is_remote):
                return self._read_parts(function)
            result = function() if writer is None else writer.read(function)
            if self._writer is writer:
                return result
        except Joined:
            self._follow()
        return self._read(function, call)

    def _read_parts(self, function: Callable[[], Result]) -> Result:
        """Return the result of a function that reads files, all of one epoch."""
        for _ in attempts(self.path):
            epoch = self._layout.folder.tree.renew().root.epoch
            if self._read_epoch != epoch:
                self._follow()
                self._layout.close_files()
                super()._read(self._check_rows)
                self._read_epoch = epoch
            view = self._opened.view
            try:
                result = function()
            except Exception:  # the columns of two states have other lengths
                if self._opened.view is view:
                    raise
                continue  # another thread has called `refresh`
            if self._layout.folder.tree.renew().root.epoch == epoch:
                return result
        raise AssertionError

    def _follow(self) -> None:
        """Be a member of the group that commits it since it was opened for reading.

        If it was opened for changes, the first change of the group has failed: it reads
        its own documents.
        """
        writer, tree = self._writer, self._layout.folder.tree
        if not tree.state.is_committed_around:
            return
        with writer.replacing() if writer else tree.replacing.current:
            if self._writer is not writer:  # it has joined the group meanwhile
                return
            new = self._reopened()
            for name, array in self._layout.arrays().items():
                now = new.arrays().get(name, array)
                if not array.is_same(now):
                    raise StaleDataset(self.path)
                if any(map(operator.lt, now.shape, array.shape)):
                    raise rows_removed(self.path)
            self._take_layout(new)

    @property
    def _has_parts(self) -> bool:
        """Whether there are several arrays of files, which change together."""
        raise NotImplementedError

    def _check_rows(self) -> None:
        """Raise `StorageError` if another program has removed rows.

        It may append others in their place, which is no change of several files.
        """
        raise NotImplementedError

    def _check_resizable(self) -> Writer:
        """Return the writer; raise `UsageError` if the number of rows can't change."""
        return self._check_writer()


class Attributes(MutableMapping[str, "Json"]):
    """Names and values, stored as JSON; changes are written at once.

    A value is what JSON returns: a list for a tuple, say. After a change inside of a
    value, assign the value again.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def _loaded(self) -> JsonObject:
        view = self._node._now.view
        known = view.values.get("known")
        if known is None:
            known = view.values.setdefault("known", view.layout.read_attributes())
        return known

    def _change(self, edit: Callable[[JsonObject], JsonObject]) -> None:
        node = self._node
        with node._turn() as writer:
            layout = node._layout
            # Another program has written it: the array gets its identity again.
            renews = isinstance(layout, ArrayLayout) and layout.changed_elsewhere

            def take_over() -> None:
                node._now.view.values["known"] = values
                if isinstance(layout, ArrayLayout) and renews:
                    layout.committed(layout.shape)

            with writer.change(take_over, disturbs=renews) as change:
                # Other programs, or other writers of a group, may have changed them.
                values = edit(layout.read_attributes(change))
                layout.stage_attributes(change, values)
                values = parse_json(encode_attributes(values))  # as all read them

    def __getitem__(self, name: str) -> Json:
        return self._loaded()[name]

    def __setitem__(self, name: str, value: Json) -> None:
        self._change(lambda values: {**values, name: value})

    def __delitem__(self, name: str) -> None:
        def without(values: JsonObject) -> JsonObject:
            rest = dict(values)
            del rest[name]
            return rest

        self._change(without)

    def put(self, values: JsonObject) -> None:
        """Replace all attributes."""
        self._change(lambda _: dict(values))

    def update(self, *others: Json, **more: Json) -> None:
        """Set several attributes in one step."""
        new = dict(*others, **more)
        self._change(lambda values: {**values, **new})

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def __repr__(self) -> str:
        return "<Attributes %r>" % (self._loaded(),)

    def asdict(self) -> JsonObject:
        """Return the attributes as a new dictionary."""
        return dict(self._loaded())
