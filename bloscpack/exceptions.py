"""Every error that Bloscpack raises on purpose.

Three families: `FormatError` says the bytes are wrong, `UsageError` the caller,
`StorageError` the world. Each class that 0.16 had keeps its name, and its old
base class stands beside the new one, so that old ``except`` clauses still catch.
"""

from __future__ import annotations


class BloscpackError(Exception):
    """Base of every error that Bloscpack raises on purpose."""


class FormatError(BloscpackError, ValueError):
    """The bytes do not follow the format.

    ``section`` is one of ``'header'``, ``'metadata'``, ``'offsets'`` and
    ``'chunks'``, ``offset`` counts bytes from the start of the file, ``chunk``
    is the number of the chunk, ``filename`` the file; each may be None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        section: str | None = None,
        offset: int | None = None,
        chunk: int | None = None,
        filename: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.section = section
        self.offset = offset
        self.chunk = chunk
        self.filename = filename

    def locate(self, chunk: int, offset: int | None) -> None:
        """Take the number and the file position of a chunk, unless they are known."""
        if self.chunk is None:
            self.chunk = chunk
            self.offset = offset if self.offset is None else self.offset

    def __str__(self) -> str:
        place = []
        if self.filename is not None:
            place.append("file '%s'" % self.filename)
        if self.section is not None:
            place.append("section '%s'" % self.section)
        if self.chunk is not None:
            place.append("chunk %d" % self.chunk)
        if self.offset is not None:
            place.append("byte %d" % self.offset)
        if not place:
            return self.message
        return "%s (%s)" % (self.message, ", ".join(place))


class NotReadable(FormatError):
    """Nothing says that the bytes are damaged, but they can't be read here.

    No Bloscpack file at all, a layout nobody knows, or a codec that is not there.
    """


class UsageError(BloscpackError, ValueError):
    """The caller asked for something that can't be done.

    ``filename`` is the file that it can't be done to, if there is one.
    """

    filename: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.filename is None:
            return text
        return "%s (file '%s')" % (text, self.filename)


class UsageTypeError(UsageError, TypeError):
    """The caller gave a value of the wrong type."""


class StorageError(BloscpackError, OSError):
    """A file, pipe or disk did not do what was needed."""


class DoesNotFit(UsageError, RuntimeError):
    """What is to be appended does not fit the array that the file holds."""


class OffsetsRequired(UsageError, RuntimeError):
    """The file has no offset table, and what was asked for needs one."""


# Names kept from 0.16


class FileNotFound(StorageError):
    """A file that has to be there is missing."""


class NoSuchChecksum(UsageError):
    """A checksum of that name does not exist."""


class NoSuchCodec(UsageError):
    """A codec of that name does not exist."""


class NoSuchSerializer(UsageError):
    """A metadata format of that name does not exist."""


class ChunkingException(UsageError):
    """The input can't be cut as asked."""


class ChunkSizeTypeSizeMismatch(UsageError):
    """The chunk size is no multiple of the item size of the array."""


class ChecksumMismatch(FormatError, RuntimeError):
    """A stored digest differs from the digest of what is there."""


class ChecksumLengthMismatch(FormatError, RuntimeError):
    """A digest does not have the length that its checksum yields."""


class FormatVersionMismatch(NotReadable, RuntimeError):
    """The file has a layout that can't be read, or not for this purpose."""


class NoMetadataFound(UsageError, RuntimeError):
    """There is no metadata section where one is needed."""


class NoChangeInMetadata(UsageError, RuntimeError):
    """The metadata to be written is what the file holds already."""


class MetadataSectionTooSmall(UsageError, RuntimeError):
    """The room of the metadata section can't hold the metadata."""


class NonUniformTypesize(UsageError, RuntimeError):
    """Chunks differ in type size; appending allows that, so nothing raises it."""


class NotEnoughSpace(UsageError, RuntimeError):
    """There is no room to append: in the offset table, or behind the chunks."""


class NotANumpyArray(NotReadable, RuntimeError):
    """The file holds no array."""


class ObjectNumpyArrayRejection(UsageError, RuntimeError):
    """Arrays of Python objects can't be stored: only addresses would be kept."""


class ObjectDtypeFound(FormatError, ObjectNumpyArrayRejection):
    """The file claims to hold an array of Python objects."""
