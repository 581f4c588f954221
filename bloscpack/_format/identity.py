"""The identity of a dataset, and the digest of each document that has it.

::

    "bloscpack-id": "id=9f86d081884c7d65 crc32=1a2b3c4d"

The value is text in the attributes of a group, and in the document of an array in an
object that programs keep and do not show. The digest is the CRC-32 of the whole
document, in which its own digits are zeros. So a document that another program has
written again, in whatever form, has a wrong digest or none (docs/format.rst,
Identities).
"""

from __future__ import annotations

import json
import os
import re
from binascii import crc32
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from .._types import Json, JsonObject
from ..exceptions import UsageValueError, metadata_damage
from .zarr_metadata import COLUMN_ORDER, HALF_PAIR, OWN, unusual_json

# The key: in an object of a document of Zarr, and in a document of superchunks.
KEY = "bloscpack-id"
# The key of the document of a Zarr group with the documents of all members.
CONSOLIDATED = "consolidated_metadata"
# A key in `OWN` of an array of which some shards were never written. A shard that is
# missing from any other array has been lost.
MISSING_SHARDS = "missing-shards"
VALUE = re.compile(r"id=([0-9a-f]{16})((?: [a-z]+=[0-9a-f]+)*) crc32=([0-9a-f]{8})")
ZEROS = "00000000"


@dataclass(frozen=True)
class Identity:
    """Which dataset a document belongs to.

    Attributes
    ----------
    name
        16 hexadecimal digits, by default random ones.
    column
        A checksum of the name of the column, if the dataset is one of a Zarr table.
    """

    name: str = field(default_factory=lambda: os.urandom(8).hex())
    column: str | None = None

    def words(self, token: str | None = None) -> str:
        """Return the value of `KEY` with zeros as digest.

        A `token` gives the document another content than it had before.
        """
        words = {"id": self.name, "column": self.column, "token": token, "crc32": ZEROS}
        return " ".join("%s=%s" % item for item in words.items() if item[1])


def column_word(name: str) -> str:
    """Return the checksum of the name of a column."""
    return "%08x" % crc32(name.encode("utf-8", "surrogatepass"))


def check_attributes(
    attributes: JsonObject, own: Mapping[str, str], holder: str = ""
) -> None:
    """Raise `UsageError` if an attribute has a name that Bloscpack uses itself.

    Also raise it if readers in other languages would refuse the document of a Zarr node
    because of a text. `own` has these names, and their effects; `holder` names the kind
    of node, for the message.
    """
    for name, meaning in own.items():
        if name in attributes:
            raise UsageValueError(
                "no attribute%s can have the name '%s': it %s" % (holder, name, meaning)
            )
    for name, value in attributes.items():
        with suppress(TypeError, RecursionError):  # encoding has a better message
            if unusual_json([name, value]) == HALF_PAIR:
                raise UsageValueError(
                    "the attribute %a has a text with %s, which is no text in JSON "
                    "of other languages: %.200a" % (name, HALF_PAIR, value)
                )


def identified(
    document: JsonObject,
    identity: Identity,
    encode: Callable[[JsonObject], bytes],
    *,
    key: str | None = None,
) -> bytes:
    """Return the content of a document with its identity and digest.

    The object under `key` in the document gets `KEY` at its end; the document itself if
    `key` is None.
    """
    value = identity.words()
    holder = document if key is None else document[key]
    holder = {**{k: v for k, v in holder.items() if k != KEY}, KEY: value}
    return _with_digest(
        encode(holder if key is None else {**document, key: holder}), value
    )[0]


def _with_digest(content: bytes, value: str) -> tuple[bytes, str]:
    """Return a document, in which `value` is that of `KEY`, and `value` with digest."""
    end = content.rindex(value.encode()) + len(value)
    digest = "%08x" % crc32(content)
    start = end - len(digest)
    stated = value[: -len(digest)] + digest
    return content[:start] + digest.encode() + content[end:], stated


def signed(
    document: JsonObject,
    content: bytes,
    encode: Callable[[JsonObject], bytes],
    token: str | None = None,
) -> bytes:
    """Return the content of a document that has changed.

    It gets a right digest, and a `token` if one is given, if the old `content` has a
    right digest: a document of another program does not become one of Bloscpack. The
    value of `KEY` in `document` is the new one then.
    """
    for holder in (document, *document.values()):
        value: Json = holder.get(KEY) if isinstance(holder, dict) else None
        identity, is_right = read_identity(content, value)
        if identity is not None and is_right:
            kept = value[: -len(ZEROS)] + ZEROS
            holder[KEY] = kept if token is None else identity.words(token)
            new, holder[KEY] = _with_digest(encode(document), holder[KEY])
            return new
    return encode(document)


def holder_of(document: JsonObject) -> str:
    """Return the key of the object in a document of Zarr that has the identity.

    In the document of a group that commits its members, it is with these: other
    programs show the attributes, and keep them if they write the document again.
    """
    if document.get("node_type") == "array":
        return OWN
    return CONSOLIDATED if CONSOLIDATED in document else "attributes"


def take_identity(document: JsonObject) -> tuple[JsonObject, Json]:
    """Return the document of a Zarr node without its identity, and the value of `KEY`.

    An array may have it and `MISSING_SHARDS` in its attributes, as older versions wrote
    them. They come to `OWN`. Documents of members that another program has put into the
    document of a group are left out: they are not committed with it.
    """
    attributes = dict(document.get("attributes", {}))
    document = {**document, "attributes": attributes}
    inline = document.pop(CONSOLIDATED, None)
    is_group = document.get("node_type") == "group" and isinstance(inline, dict)
    if is_group and KEY in inline and isinstance(inline.get("metadata"), dict):
        document[CONSOLIDATED] = dict(inline)
    key = holder_of(document)
    if key == OWN:
        own = document.get(OWN, {"must_understand": False})
        if not isinstance(own, dict):  # `decode_array` refuses it
            return document, None
        old = KEY, MISSING_SHARDS
        moved = {name: attributes.pop(name) for name in old if name in attributes}
        document[OWN] = {**moved, **own}
    return document, document[key].pop(KEY, None)


def seems_signed(content: bytes) -> bool:
    """Return whether a document has had an identity, which damage may have hidden.

    One flipped bit can't make both the key and the value unknown.
    """
    return KEY.encode() in content or bool(VALUE.search(content.decode("latin-1")))


def read_identity(content: bytes, value: Json) -> tuple[Identity | None, bool]:
    """Return the identity in a document, and whether the digest is right.

    `value` is the value of `KEY`, and `content` the whole document.
    """
    match = VALUE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None, False
    name, others, digest = match.groups()
    words = dict([word.split("=") for word in others.split()]) if others else {}
    identity = Identity(name, words.get("column"))
    end = content.rfind(value.encode()) + len(value)
    same = content[: end - len(digest)] + ZEROS.encode() + content[end:]
    return identity, crc32(same) == int(digest, 16)


def find_identity(content: bytes, document: Json) -> Identity | None:
    """Return the identity in a document with a right digest; None in any other.

    `content` is the whole document, and `document` the value in it.
    """
    identity, is_right = read_identity(content, stated_identity(document))
    return identity if is_right else None


def says_committed(document: Json) -> bool:
    """Return whether a document says that the one of a group around commits it."""
    match = VALUE.fullmatch(stated_identity(document))
    return match is not None and " column=" in match[2]


def is_copy(content: bytes, document: Json) -> bool:
    """Return whether a document is a copy of one in the document of a group."""
    return says_committed(document) and find_identity(content, document) is not None


def is_copy_of(content: bytes, document: Json, member: Json) -> bool:
    """Return whether a document is a copy of a member's document, perhaps an older one.

    The document from before the group committed the member is older, too. It differs in
    the identity only: a writer has died before it wrote the copy.
    """
    if is_copy(content, document):
        return True
    known = find_identity(content, document)
    is_same = known is not None and known.name in stated_identity(member)
    return is_same and says_same(document, member)


def says_same(document: JsonObject, other: JsonObject) -> bool:
    """Return whether two documents of members differ in their identities only."""
    return _plain(document) == _plain(other)


def _plain(document: JsonObject) -> JsonObject:
    """Return the document of a member, without the identities of it and its columns.

    Return `document` itself if a program has put something else in their places.
    """
    if not all(isinstance(document.get(key, {}), dict) for key in ("attributes", OWN)):
        return document
    plain = take_identity(document)[0]
    plain.pop(CONSOLIDATED, None)
    return plain


def belongs_to(content: bytes, document: Json, copy: Json) -> bool:
    """Return whether the group that has a copy of a member's document commits it.

    The copy says so, whatever another program has made of the document since. A dataset
    of Bloscpack that somebody has put in the place of the member commits itself.
    """
    known, stated = find_identity(content, document), stated_identity(copy)
    is_part = known is None or known.column is not None or known.name in stated
    return is_part and says_committed(copy)


def is_outdated(document: Json, copy: Json, *, is_replaced: bool) -> bool:
    """Return whether another program has written a member's document over an older one.

    It states the digest of the document that this program has read, which is not that
    of the `copy`. One of another dataset is older only if the member `is_replaced` by
    an incomplete change: somebody may have put that dataset in the place of the member.
    """
    if not (says_committed(document) and says_committed(copy)):
        return False
    if is_of_other(document, copy):
        return is_replaced
    return stated_identity(document) != stated_identity(copy)


def is_of_other(document: Json, copy: Json) -> bool:
    """Return whether two documents state identities of different datasets."""
    return stated_identity(document).split()[:1] != stated_identity(copy).split()[:1]


def as_member(
    content: bytes, document: JsonObject, copy: Json, *, is_old: bool = False
) -> bytes:
    """Return the document of a member that another program has written, for a copy.

    It says that the group commits it, as the `copy` before did. Of one that `is_old`,
    only the attributes count, besides the attributes of the copy.
    """
    plain, newer = _plain(document), _plain(copy)
    if plain is document or newer is copy or not belongs_to(content, document, copy):
        return content
    if is_old:
        older, kept = plain["attributes"], newer["attributes"]
        if is_of_other(document, copy):  # the last change has replaced that member
            older = {}
        order = {key: kept[key] for key in kept if key == COLUMN_ORDER}
        plain = {**newer, "attributes": {**kept, **older, **order}}
    elif says_committed(document):
        return content
    plain[holder_of(plain)][KEY] = stated_identity(copy)
    return json.dumps(plain).encode()


def as_copy(content: bytes) -> bytes | None:
    """Return the document that `as_member` has returned with a right digest.

    Then the copy counts in its place. None if it does not say that a group commits it.
    """
    document = json.loads(content)
    value = stated_identity(document)
    if not says_committed(document):
        return None
    zeros = value[: -len(ZEROS)] + ZEROS
    return _with_digest(content.replace(value.encode(), zeros.encode()), zeros)[0]


def stated_identity(document: Json) -> str:
    """Return the text under `KEY` in a document; '' if there is none."""
    if not isinstance(document, dict):
        return ""
    for holder in (document, document.get(OWN), *document.values()):
        value = holder.get(KEY) if isinstance(holder, dict) else None
        if isinstance(value, str):
            return value
    return ""


def check_identity(
    content: bytes, document: JsonObject, *, expected: str | None
) -> None:
    """Check a document that no other program writes; `KEY` becomes the identity in it.

    Raises `FormatError` if its digest is wrong or missing, or if it belongs to another
    dataset than that with the identity `expected`.
    """
    identity, is_right = read_identity(content, document.pop(KEY, None))
    if identity is None or not is_right:
        raise metadata_damage(
            "expected a document with a right digest, found a wrong one or none"
        )
    if expected not in (None, identity.name):
        raise metadata_damage(
            "expected the document of the dataset with the identity '%s', found one of "
            "'%s'" % (expected, identity.name)
        )
    document[KEY] = identity.name
