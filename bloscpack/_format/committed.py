"""What the document of a dataset commits besides itself.

::

    {"node_type": "group", "attributes": {…,
        "bloscpack-pending": {"files": {"x/c/0": "1f3a-0", "y/zarr.json": null},
                              "crc32": "1a2b3c4d"}},
     "consolidated_metadata": {"kind": "inline", "must_understand": false,
        "metadata": {"x": {…}, "y": {…}}, "bloscpack-id": "id=… crc32=…"}}

``bloscpack-pending`` lists the files of a change that was committed with the document:
the name that each of them gets, and its name in the folder ``.bloscpack`` until then;
null for a file that is removed. Its own digest lets it survive a program that writes
the document again. It is an attribute in a document of Zarr, and a key in a document of
other layouts. ``consolidated_metadata`` has the documents of the members that the
document commits (docs/format.rst, Commits). Pure functions of documents, no files.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from json.encoder import encode_basestring_ascii
from typing import Any, NoReturn

from .._engine.forks import cached_property
from .._types import Json, JsonObject
from ..exceptions import metadata_damage
from ..serializers import (
    check_new_nesting,
    encode_document,
    finished_document,
    json_in_lines,
)
from .dtypes import refuse, shown
from .identity import (
    CONSOLIDATED,
    KEY,
    find_identity,
    read_identity,
    seems_signed,
    signed,
    stated_identity,
)
from .names import is_safe_name, is_safe_part
from .zarr_metadata import NO_COPIES, ZARR_JSON

# The folder, inside of a dataset, with the files that have not got their names yet.
STAGING = ".bloscpack"
PENDING = "bloscpack-pending"
# A line of the document of an array, in the form in which this package writes it.
ARRAY_LINE = b'\n  "node_type": "array"'
# The files that commit the changes of a dataset, of all layouts.
DOCUMENTS = (ZARR_JSON, "meta/sizes", "__rootdirs__")


def decode_pending(document: Json, content: bytes) -> dict[str, str | None]:
    """Return the files of a change that are not in place, by the names that they get.

    The values are their names in the dataset until then; None for a file that is
    removed. `content` is the whole document. Raises `FormatError` if the list is
    damaged, or if damage may have hidden it.
    """
    if not isinstance(document, dict):
        return {}
    holder = document.get("attributes") if "zarr_format" in document else document
    values = holder if isinstance(holder, dict) else {}
    if PENDING not in values:
        is_there = PENDING.encode() in content or any(map(_is_list, values.values()))
        is_damaged = is_there and seems_signed(content)
        if is_damaged and find_identity(content, document) is None:
            _refuse("none")
        return {}
    stored = values[PENDING]
    if not _is_list(stored):
        _refuse(shown(stored))
    files: dict[str, str | None] = stored["files"]
    for name, staged in files.items():
        is_right = staged is None or is_safe_part(staged)
        if not is_right or not is_safe_name(name) or name in DOCUMENTS:
            _refuse(shown(stored))
    # The new documents of members are a part of the change.
    is_group = document.get("node_type") == "group"
    if is_group and decode_members(document, content) is None:
        _refuse("one without the documents of members")
    return {n: None if s is None else STAGING + "/" + s for n, s in files.items()}


def _is_list(stored: Json) -> bool:
    """Return whether a value is a list of files with a right digest."""
    files = stored.get("files") if isinstance(stored, dict) else None
    return isinstance(files, dict) and stored.get("crc32") == _digest(files)


def _refuse(found: str) -> NoReturn:
    raise metadata_damage(
        "expected '%s' to be a list of files with a right digest, found %s"
        % (PENDING, found)
    )


def _digest(files: JsonObject) -> str:
    return "%08x" % crc32(json.dumps(files, sort_keys=True).encode())


def decode_members(document: Json, content: bytes) -> dict[str, Json] | None:
    """Return the documents of the members that a document commits, by their names.

    None if it commits no other. The copies in a document that another program has
    written are none of these, and neither are those in a damaged one. Raises
    `FormatError` for a name that no member has: a writer makes a file in its folder.
    """
    stored = document.get(CONSOLIDATED) if isinstance(document, dict) else None
    if not isinstance(stored, dict) or not read_identity(content, stored.get(KEY))[1]:
        return None
    members = stored.get("metadata")
    if not isinstance(members, dict):
        return None
    for name in members:
        if not is_safe_name(name) or {ZARR_JSON, STAGING} & {*name.split("/")}:
            refuse("names of members in '%s'" % CONSOLIDATED, name)
    return {name: _of_file(member) for name, member in members.items()}


def missed_by_others(members: Iterable[str]) -> list[str]:
    """Return the members that zarr-python before 3.4 does not find, by their order.

    Of the members of a group, it takes those that are side by side for all.
    """
    last: dict[str, list[str]] = {}
    missed: list[str] = []
    inner = sorted((p for p in members if "/" in p), key=lambda path: path.count("/"))
    for group, paths in groupby(inner, lambda path: path.rpartition("/")[0]):
        missed += last.get(group, [])
        last[group] = [*paths]
    return sorted(missed)


def no_members() -> JsonObject:
    """Return the value of `CONSOLIDATED` in a document that commits members."""
    return {**NO_COPIES, "metadata": {}}


def _as_copy(document: JsonObject) -> JsonObject:
    """Return the copy of a member's document.

    The copy of a group has the identity where no program shows it. In the file of the
    group that can't be: other programs would find a group without members there.
    """
    attributes = document.get("attributes")
    attributes = dict(attributes) if isinstance(attributes, dict) else {}
    if document.get("node_type") != "group" or KEY not in attributes:
        return document
    inline = {**no_members(), KEY: attributes.pop(KEY)}
    return {**document, "attributes": attributes, CONSOLIDATED: inline}


def _of_file(copy: Json) -> Json:
    """Return the document in the file of a member, from its copy."""
    inline = copy.get(CONSOLIDATED) if isinstance(copy, dict) else None
    if not isinstance(inline, dict) or KEY not in inline:
        return copy
    document = {name: value for name, value in copy.items() if name != CONSOLIDATED}
    attributes = document.get("attributes")
    if isinstance(attributes, dict):  # a reader refuses any other
        document["attributes"] = {**attributes, KEY: inline[KEY]}
    return document


class Root:
    """The document of a dataset, of which the texts of copies are kept.

    Encoding the documents of all members for each change would take most of its time.
    A root is never changed.

    Parameters
    ----------
    content, document
        The document, and the value in it; None if it is not decoded yet.
    texts
        The copies that it gets, or that `content` has, by the names of members; None if
        they are in `document`.

    Attributes
    ----------
    epoch
        A text that changes when a change of several files is committed: the identity in
        the document, and its token, which each document keeps from the one before.
    seen
        The value of this document or of a member's, and the node that `layouts.zarr`
        has decoded from it last.
    """

    seen: tuple[object, Any] = (object(), None)

    def __init__(
        self, content: bytes, document: Json = None, texts: dict[str, str] | None = None
    ) -> None:
        self.content = content
        self._document = document
        self._texts = texts

    @property
    def document(self) -> Json:
        """The value in it."""
        if self._document is None:
            self._document = json.loads(self.content)
        return self._document

    @cached_property
    def epoch(self) -> str:
        return stated_identity(self.document).rpartition(" ")[0]

    @property
    def texts(self) -> dict[str, str] | None:
        """The copies in it, by the names of members; None if it has no place for them.

        Those of a document in the form in which this class writes it are parts of it.
        """
        holder = self.document.get(CONSOLIDATED)
        stored = holder.get("metadata") if isinstance(holder, dict) else None
        if self._texts is None and isinstance(stored, dict):
            texts = self._parts(stored) if stored else {}
            if texts is None:
                texts = {name: _indented(copy) for name, copy in stored.items()}
            self._texts = texts
        return self._texts

    def in_own_file(self, path: str, member: Json) -> bytes:
        """Return the document `member` of a member as its own file has it."""
        text = (self._texts or {}).get(path) if isinstance(member, dict) else None
        if text is None or member.get("node_type") != "array":
            return encode_document(member, 2)
        return text.replace("\n      ", "\n").encode() + b"\n"

    def changed(self, members: Mapping[str, bytes | None], token: str = "") -> Root:
        """Return the document with other documents of members.

        None removes a member; those that are not in `members` stay. A document without
        copies gets none: another program may have written it meanwhile. A `token` shows
        readers that several files have changed since they began to read; without one,
        the document keeps its own.
        """
        if self.texts is None:
            return self._encoded(self.document, None, token) if token else self
        texts = {**self.texts}
        for name, member in members.items():
            if member is None:
                texts.pop(name, None)
            else:
                texts[name] = _text_of(member)
                check_new_nesting("[[[%s]]]" % texts[name])
        return self._encoded(self.document, texts, token or None)

    def with_files(self, files: Mapping[str, str | None]) -> Root:
        """Return the document with another list of files, or without one."""
        document = dict(self.document)
        key = "attributes" if "zarr_format" in document else None
        holder = document if key is None else dict(document.get(key) or {})
        holder.pop(PENDING, None)
        if files:
            listed = {
                n: None if s is None else s.rpartition("/")[2] for n, s in files.items()
            }
            holder[PENDING] = {"files": listed, "crc32": _digest(listed)}
        if key is not None and (files or key in document):
            document[key] = holder
        return self._encoded(document, self.texts)

    def _encoded(
        self,
        document: JsonObject,
        texts: dict[str, str] | None,
        token: str | None = None,
    ) -> Root:
        """Return a changed document, with a right digest if this one has it."""
        document = {k: {**v} if isinstance(v, dict) else v for k, v in document.items()}
        if texts is not None:
            document[CONSOLIDATED]["metadata"] = {}

        def encode(shown: JsonObject) -> bytes:
            if texts is None:
                return encode_document(shown, 2 if "zarr_format" in shown else None)
            front, end = _around(shown)
            # Other programs need the copies of all members of a group side by side.
            by_level = sorted(texts, key=lambda path: (path.count("/"), path))
            copies = ",\n".join(
                "      %s: %s" % (encode_basestring_ascii(name), texts[name])
                for name in by_level
            )
            inner = "{\n%s\n    }" % copies if copies else "{}"
            return finished_document(front + inner + end)

        return Root(signed(document, self.content, encode, token), document, texts)

    def _parts(self, stored: JsonObject) -> dict[str, str] | None:
        """Return the parts of the content that are copies; None if it has another form.

        `stored` has the values of the copies.
        """
        front, end = _around(self.document)
        start, stop = front + "{\n      ", "\n    }" + end
        if not self.content.isascii():
            return None
        text = self.content.decode().removesuffix("\n")
        if not (text.startswith(start) and text.endswith(stop)):
            return None
        parts = text[len(start) : -len(stop)].split(',\n      "')
        parts[1:] = map('"'.__add__, parts[1:])
        starts = [encode_basestring_ascii(name) + ": " for name in stored]
        if len(parts) != len(starts) or not all(map(str.startswith, parts, starts)):
            return None
        parts = list(map(str.removeprefix, parts, starts))
        with suppress(ValueError):  # the lines of a copy may have the same form
            values, expected = json.loads("[%s]" % ",".join(parts)), [*stored.values()]
            if values == expected or json.dumps(values) == json.dumps(expected):
                return dict(zip(stored, parts, strict=True))
        return None


def _text_of(content: bytes) -> str:
    """Return the text of the copy of a member's document, which has the `content`."""
    if ARRAY_LINE in content and content.isascii():  # it has these lines already
        return content.decode().strip().replace("\n", "\n      ")
    return _indented(_as_copy(json.loads(content)))


def _indented(copy: Json) -> str:
    """Return the text of a copy as the document around it has it."""
    return json_in_lines(copy).replace("\n", "\n      ")


def _around(document: JsonObject) -> tuple[str, str]:
    """Return the text of a document in front of its copies, and behind them."""
    mark = os.urandom(16).hex()
    holder = {**document[CONSOLIDATED], "metadata": mark}
    text = json_in_lines({**document, CONSOLIDATED: holder})
    check_new_nesting(text)
    front, end = text.split('"%s"' % mark)
    return front, end
