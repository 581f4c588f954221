"""An open archive: its members, and which of them are arrays.

`is_archive` recognizes damaged archives, too. The modules that read archives are
imported only for files that may be one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from zlib import crc32

from .._format.dtypes import DType
from .._format.zarr_metadata import ZARR_JSON, ArrayDocument, decode_array
from .._format.zip_format import (
    TAIL_LENGTH,
    Member,
    begins_as_archive,
    decode_local,
    local_extent,
    read_directory,
)
from .._storage.base import PartStorage, Storage, naming_errors
from .._storage.local import whole_file
from .._storage.paths import shown_name
from .._types import Buffer, JsonObject, Path, Seekable, StorageOptions
from ..constants import MAGIC, MAX_DOCUMENT
from ..exceptions import (
    DamageError,
    FormatError,
    NotReadable,
    Unsupported,
    UsageError,
    UsageValueError,
)
from ..serializers import parse_json
from .opened import open_source

# The extension of the member of an array that Zarr has no shards of.
BLP = ".blp"
# Numbers of bytes that are read at a URL with the end records, which have the directory
# of most archives in front of them, and with the header of a member.
END_NBYTES = TAIL_LENGTH + 64 * 2**10
BEGIN_NBYTES = 64 * 2**10


# Names of arrays, and of the members that hold them


def document_name(name: str) -> str:
    return "%s/%s" % (name, ZARR_JSON)


def check_names(names: Collection[str]) -> None:
    """Raise `UsageError` unless arrays can have these names beside each other."""
    for name in names:
        if not isinstance(name, str) or not all(map(_is_part, name.split("/"))):
            raise UsageValueError(
                "an array can't have the name %.200r: expected text whose parts, "
                "between slashes, are neither empty, '.', '..' nor '%s', do not begin "
                "with '__' or end with '%s', and have no backslash"
                % (name, ZARR_JSON, BLP)
            )
    parents = parents_of(names)
    for name in names:
        if name in parents:
            raise UsageValueError(
                "'%s' can't be an array and a group with other arrays" % name
            )


def _is_part(part: str) -> bool:
    return (
        part not in ("", ".", "..", ZARR_JSON)
        and not part.startswith("__")
        and not part.endswith(BLP)
        and not any(c in part for c in "\\\0")
    )


def parents_of(names: Collection[str]) -> dict[str, None]:
    """Return the groups that contain the names, in order; the outermost one is not."""
    parents: dict[str, None] = {}
    for name in names:
        parts = name.split("/")
        for i in range(1, len(parts)):
            parents["/".join(parts[:i])] = None
    return parents


# Archives


class ArchiveFile:
    """An open archive: its storage, its members, and its arrays.

    ``entries`` are all members in the order of the ``directory``, and ``members`` those
    that count, by name: of several with a name the last one, as in Zarr. ``arrays``
    has, by the name of each array, the name of the member with its chunks.
    """

    def __init__(
        self,
        file: Path | Seekable | Buffer | Storage,
        storage_options: StorageOptions | None = None,
    ) -> None:
        source, self.name = open_source(
            file, storage_options=storage_options, end=END_NBYTES
        )
        # The file below the buffer: a fork may copy the locked lock of a buffer.
        close: Callable[[], None] = getattr(source, "raw", source).close
        self._close = None if self.name is None else close
        try:
            self.storage = source if isinstance(source, Storage) else whole_file(source)
            with naming_errors(self.name or ""):
                self.directory, self.entries = read_directory(self.storage)
                self.members = members_of(self.entries)
                self.arrays = self._find_arrays()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, unless the caller opened it."""
        if self._close is not None:
            self._close()

    def __del__(self) -> None:
        if hasattr(self, "_close"):
            self.close()

    def label(self, name: str) -> str:
        """Return the name of an array with the name of the file, for messages."""
        return name if self.name is None else "%s/%s" % (self.name, name)

    def member(self, name: str) -> Member:
        """Return a member; raise `FormatError` if there is none of this name."""
        if name not in self.members:
            raise DamageError("the member %.200r of the archive is missing" % name)
        return self.members[name]

    def chunks(self, name: str) -> Member:
        """Return the member with the chunks of an array.

        Raises ``KeyError`` if there is no array of this name.
        """
        member = self.arrays[name]
        if member == document_name(name):
            raise DamageError(
                "no member of the archive has the chunks of %.200r" % name
            )
        return self.member(member)

    def extent(self, member: Member) -> tuple[int, int]:
        """Return the extent of the bytes of a member."""
        start, stop = local_extent(member)
        start = decode_local(self.storage.read_at(start, stop - start), member)
        return start, start + member.size

    def contents(self, *members: Member) -> list[PartStorage]:
        """Return the bytes of members, of which the first ones are read together."""
        most = BEGIN_NBYTES if self.storage.is_remote else 0
        headers = [local_extent(member) for member in members]
        sizes = [min(most, member.size) for member in members]
        spans = [(a, b + size) for (a, b), size in zip(headers, sizes, strict=True)]
        parts = []
        for member, (start, stop), data in zip(
            members, headers, self.storage.read_many(spans), strict=True
        ):
            first = decode_local(data[: stop - start], member)
            extent = first, first + member.size
            head = data[first - start :][: member.size]
            parts.append(PartStorage(self.storage, *extent, self, head))
        return parts

    def json(self, member: Member, content: PartStorage | None = None) -> JsonObject:
        """Return the content of a ``zarr.json``, which may be open already."""
        content = content or self.contents(member)[0]
        if content.size > MAX_DOCUMENT:
            raise DamageError(
                "expected at most '%d' bytes in %.200r, found '%d'"
                % (MAX_DOCUMENT, member.name, content.size)
            )
        text = content.read_at(0, content.size)
        if crc32(text) != member.crc:
            raise DamageError("the crc32 of %.200r does not match" % member.name)
        try:
            document = parse_json(text)
        except ValueError as error:
            raise DamageError(
                "expected JSON in %.200r: %.200s" % (member.name, error)
            ) from error
        return document if isinstance(document, dict) else {}

    def document(self, name: str, content: PartStorage | None = None) -> ArrayDocument:
        """Return the description of an array in its ``zarr.json``."""
        document = self.json(self.member(document_name(name)), content)
        try:
            return decode_array(document)
        except Unsupported as error:
            error.filename = shown_name(self.label(name))
            raise

    def _find_arrays(self) -> dict[str, str]:
        """Return the name of the member with the chunks of each array.

        An array of which the document or the chunks are missing is one of them: reading
        it raises an error. Raises `FormatError` if `savez` can't have written the file.
        """
        members = self.members
        if ZARR_JSON not in members:
            npy = any(name.endswith(".npy") for name in members)
            raise NotReadable(
                "expected a ZIP file of savez, with the member '%s', found %s"
                % (ZARR_JSON, "arrays of NumPy: numpy.load reads it" if npy else "none")
            )
        arrays: dict[str, str] = {}
        others = set()
        for name in members:
            array, mark, chunk = name.rpartition("/c/")
            if name.endswith(BLP):
                array = name.removesuffix(BLP)
            elif not mark:
                continue
            elif set(chunk.split("/")) != {"0"}:
                if document_name(array) in members:
                    others.add(array)
                continue
            if array in arrays:
                raise DamageError(
                    "the members %.200r and %.200r are the same array"
                    % (arrays[array], name)
                )
            arrays[array] = name
        end = "/" + ZARR_JSON
        documents = [name.removesuffix(end) for name in members if name.endswith(end)]
        left = set(documents).difference(arrays, others)
        if left:
            left.difference_update(parents_of([*documents, *arrays]))
        for name in documents:
            if name in left and self._lacks_chunks(name):
                arrays[name] = document_name(name)
        return {n: m for n, m in arrays.items() if m.endswith(BLP) or n not in others}

    def _lacks_chunks(self, name: str) -> bool:
        """Return whether a document without chunks may describe an array."""
        try:
            if self.json(self.members[document_name(name)]).get("node_type") == "group":
                return False
            self.document(name)
        except Unsupported:  # an array that savez can't have written
            return False
        except FormatError:
            pass
        return True


def members_of(entries: list[Member]) -> dict[str, Member]:
    """Return the members by name; of several with a name the last one, as Zarr does."""
    return {m.name: m for m in entries if not m.name.endswith("/")}


def check_document(
    document: ArrayDocument, shape: tuple[int, ...], dtype: DType, member: str
) -> None:
    """Raise `FormatError` unless ``zarr.json`` describes the array in a member."""
    in_place = member.endswith("/c" + "/0" * len(shape))
    if (document.shape, document.dtype) != (shape, dtype) or not in_place:
        raise DamageError(
            "'%s' describes an array of shape %s and dtype '%s', but '%s' has one of "
            "shape %s and dtype '%s': another program has changed it"
            % (ZARR_JSON, document.shape, document.dtype, member, shape, dtype)
        )


def is_archive(storage: Storage) -> bool:
    """Return whether `savez` may have written the bytes, which may be damaged.

    The document of the group is their first member, or a member of the directory.
    """
    if storage.read_at(0, len(MAGIC)) == MAGIC:
        return False
    if begins_as_archive(storage):
        return True
    try:
        return ZARR_JSON in members_of(read_directory(storage)[1])
    except FormatError:
        return False


def refuse_archive(storage: Storage) -> None:
    """Raise `UsageError` for an archive, where a single file is expected."""
    if is_archive(storage):
        raise UsageError(
            "the file is an archive of several arrays: extract it with 'unzip', which "
            "keeps damaged members, too; 'blpk recover FOLDER NEW' then saves the "
            "arrays; recover each .blp file that is not a shard separately"
        )
