"""The groups and tables of the layout ``zarr``.

::

    ROOT/zarr.json       a group of Zarr format 3, with the attributes of users
    ROOT/NAME/…          a member

A table is a group whose attribute ``column-order`` lists its columns: arrays of the
same length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..._commit.new_files import Change
from ..._commit.writer import Writer
from ..._format.array_metadata import is_whole
from ..._format.dtypes import shown
from ..._format.zarr_metadata import (
    CONSOLIDATED,
    ZARR_JSON,
    encode_json,
    group_document,
    is_unsharded,
    why_not_native,
)
from ..._format.zip_format import MEMBERS
from ..._types import Json, JsonObject
from ...exceptions import FormatError, UsageValueError
from ..folder import BAD_NAME, Folder, is_member_name
from ..labels import ROW, stored_dims
from .base import (
    ArrayLayout,
    GroupLayout,
    NewArray,
    NewColumn,
    NewColumns,
    NodeLayout,
    TableLayout,
    are_names,
)
from .identity import (
    KEY,
    Identity,
    check_attributes,
    column_word,
    identified,
    read_identity,
    seems_signed,
)
from .zarr_array import ZarrArray

# The attribute of a group that makes it a table.
COLUMN_ORDER = "column-order"
# The attributes that users do not see, and their effect.
OWN_ATTRIBUTES = {
    COLUMN_ORDER: "makes a group a table",
    KEY: "says which dataset it is",
    MEMBERS: "lists the members of an archive",
}


def detect(folder: Folder) -> str | None:
    """Return the kind of a folder; None if it has no document of Zarr format 3."""
    try:
        content, document = folder.detect_document(ZARR_JSON)
        kind, attributes = check_node(folder, document)
        is_own = read_identity(content, attributes.get(KEY))[1]
        if kind == "array" and not is_own and why_not_native(document):
            # A program may have copied the attributes of one of our arrays.
            is_copy = is_unsharded(document) or not seems_signed(content)
            kind = "" if is_copy else kind
    except FormatError:  # the error of opening it is better
        return "group"
    except (FileNotFoundError, NotADirectoryError):
        return None
    if kind == "group" and COLUMN_ORDER in attributes:
        return "table"
    return kind or None  # for another layout


def check_node(folder: Folder, value: Json) -> tuple[str, JsonObject]:
    """Return the kind of a node, ``'array'`` or ``'group'``, and its attributes.

    `value` is the document in ``zarr.json``. Raises `FormatError` if it is damaged.
    """
    wrong = None if isinstance(value, dict) else shown(value)
    document = value if isinstance(value, dict) else {}
    kind, attributes = document.get("node_type"), document.get("attributes", {})
    for name, is_right in (
        ("zarr_format", is_whole(document.get("zarr_format"), 3, 3)),
        ("node_type", kind in ("array", "group")),
        ("attributes", isinstance(attributes, dict)),
    ):
        if wrong is None and not is_right:
            wrong = "'%s': %s" % (name, shown(document.get(name, "nothing")))
    if wrong is not None:
        message = "expected the document of a Zarr node of format 3, found %s" % wrong
        raise folder.damage(message, ZARR_JSON)
    return str(kind), attributes


class NodeDocument(NamedTuple):
    """The document of a group, or of another node whose attributes matter.

    Attributes
    ----------
    kind
        ``'array'`` or ``'group'``.
    document, attributes
        The document and the attributes in it, without the identity and the list of an
        archive.
    identity, is_own
        What `read_identity` returns.
    """

    kind: str
    document: JsonObject
    attributes: JsonObject
    identity: Identity | None
    is_own: bool


def read_node(folder: Folder) -> NodeDocument:
    """Return the document that is in the file now."""
    return decode_node(folder, *folder.read_document(ZARR_JSON))


def decode_node(folder: Folder, content: bytes, value: Json) -> NodeDocument:
    """Return the document of a node; raise `FormatError` if it is damaged."""
    kind, attributes = check_node(folder, value)
    attributes = dict(attributes)  # `folder` keeps the value in the file
    attributes.pop(MEMBERS, None)  # a document that is changed lists no members
    identity, is_own = read_identity(content, attributes.pop(KEY, None))
    document = {**value, "attributes": attributes}
    return NodeDocument(kind, document, attributes, identity, is_own)


def stage_document(change: Change, folder: Folder, attributes: JsonObject) -> None:
    """Let `change` replace the attributes of a group, those of Bloscpack included."""
    node = read_node(folder)
    document = {**node.document, "attributes": attributes}
    document.pop(CONSOLIDATED, None)
    change.stage(folder.full(ZARR_JSON), encode_node(document, node.identity))


def encode_node(document: JsonObject, identity: Identity | None = None) -> bytes:
    """Return the content of ``zarr.json``, with this identity or a new one."""
    return identified(document, identity or Identity(), encode_json, key="attributes")


def drop_consolidated(
    folder: Folder, writer_of: Callable[[Folder], Writer], change: Change | None = None
) -> None:
    """Remove the copies of documents from a node, and from the groups that hold it.

    Other readers would take a copy for the document of the node that changes. `change`
    is a change of the node, which has locked it. Only nodes with copies are written.
    """
    while True:
        try:
            # The change reads the same document next.
            read = folder.read_document if change is None else folder.detect_document
            node = decode_node(folder, *read(ZARR_JSON))
        except (FormatError, FileNotFoundError):  # not in a group of Zarr
            return
        if node.document.get(CONSOLIDATED) is not None:
            if change is not None:
                stage_document(change, folder, node.attributes)
            else:
                with writer_of(folder).change() as own:
                    # Another writer may have changed the attributes until now.
                    stage_document(own, folder, read_node(folder).attributes)
        change, outer = None, folder.parent_dataset()
        if outer is None:
            return
        folder = outer[0]


class ZarrNode(NodeLayout):
    """A group or a table, with the attributes of users in its document."""

    name = "zarr"
    description_files = (ZARR_JSON,)

    def read_attributes(self) -> JsonObject:
        """Return the attributes of the user."""
        attributes = read_node(self.folder).attributes
        attributes.pop(COLUMN_ORDER, None)
        return attributes

    def stage_attributes(self, change: Change, values: JsonObject) -> None:
        """Let `change` replace all attributes of the user."""
        check_attributes(values, OWN_ATTRIBUTES)
        order = {COLUMN_ORDER: [*self.columns]} if isinstance(self, ZarrTable) else {}
        stage_document(change, self.folder, {**order, **values})


class ZarrGroup(ZarrNode, GroupLayout):
    """A group of Zarr."""

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        node = read_node(folder)
        if node.kind != "group":
            message = "expected the document of a group, found one of an array"
            raise folder.damage(message, ZARR_JSON)
        self.changed_elsewhere = not node.is_own

    @classmethod
    def create(cls, change: Change, attrs: JsonObject) -> None:
        """Write a new group without members to the folder of `change`."""
        check_attributes(attrs, OWN_ATTRIBUTES)
        change.stage(ZARR_JSON, encode_node(group_document(attrs)))


class ZarrTable(ZarrNode, TableLayout):
    """A group of Zarr whose members are the columns of a table."""

    array_class = ZarrArray

    def __init__(self, folder: Folder, *, allow_pickle: bool = False) -> None:
        self.folder = folder
        node = read_node(folder)
        self.changed_elsewhere = not node.is_own
        names = node.attributes.get(COLUMN_ORDER)
        if not are_names(names, is_member_name):
            message = "expected '%s' to be different names of members, found %s"
            raise folder.damage(message % (COLUMN_ORDER, shown(names)), ZARR_JSON)
        self.columns = self.open_columns({name: name for name in names})

    def _open_column(self, name: str, column_prefix: str) -> ArrayLayout:
        column = super()._open_column(name, column_prefix)
        assert isinstance(column, ZarrArray)
        word = column.column_word
        if not self.changed_elsewhere and word not in (None, column_word(name)):
            message = "expected the document of the column '%s', found one of another "
            raise column.folder.damage(message % name + "column", ZARR_JSON)
        return column

    # Writing

    @classmethod
    def create(cls, change: Change, columns: NewColumns, attrs: JsonObject) -> None:
        """Write a new table to the folder of `change`."""
        check_attributes(attrs, OWN_ATTRIBUTES)
        document = group_document({COLUMN_ORDER: list(columns), **attrs})
        content = encode_node(document)
        for name in columns:  # a wrong name is an error before anything is written
            change.make_folder(name)
        for name, (new, blocks) in columns.items():
            prepare_column(name, new)
            cls.array_class.create(change, name + "/", new, blocks)
        change.stage(ZARR_JSON, content)

    @classmethod
    def check_column_name(cls, name: str) -> None:
        """Raise `UsageError` unless a member of a group can have the name."""
        if not is_member_name(name):
            raise UsageValueError(BAD_NAME % ("column", name))

    def create_column(self, change: Change, name: str, column: NewColumn) -> None:
        """Write a column, which the table does not have before `stage_columns`."""
        rows = next((c.stored_dims or [None])[0] for c in self.columns.values())
        column[0].dims = [rows, *(column[0].dims or [None])[1:]]
        prepare_column(name, column[0])
        super().create_column(change, name, column)

    def stage_columns(self, change: Change, names: list[str]) -> None:
        """Let `change` set the columns and their order.

        A column that is removed loses its document: readers that don't know of
        `COLUMN_ORDER` must not find it either.
        """
        attributes = {COLUMN_ORDER: names, **self.read_attributes()}
        stage_document(change, self.folder, attributes)
        for name in set(self.columns) - set(names):
            change.remove(self.folder.full(name + "/" + ZARR_JSON))


def prepare_column(name: str, new: NewArray) -> None:
    """Let a new array be a column: with names of axes, and its identity.

    xarray needs a name for each axis, and the same length of all axes of that name.
    """
    new.dims = stored_dims(name, len(new.shape), new.dims or [ROW])
    new.column = column_word(name)
