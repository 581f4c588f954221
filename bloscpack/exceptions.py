"""Every error that Bloscpack raises on purpose.

There are three families: `FormatError` means that the bytes of a file are wrong,
`UsageError` that a call is wrong, `StorageError` that a file, pipe or disk failed.
Each class of release 0.16 keeps its name, and keeps its base class as a second base.
An ``except ValueError`` of an old program must catch no more than it did, so the first
two families have no built-in base, and a class has the base that 0.16 raised in the
same situation. All damage is a ``RuntimeError``, the base that 0.16 raised for wrong
digests, where 0.16 also raised errors of zlib and struct (docs/compatibility.rst,
Errors).
"""

from __future__ import annotations


def install_hint(extra: str) -> str:
    """Return the command that installs the packages of an extra, for messages.

    This version is in no package index: ``bloscpack[...]`` there is release 0.16.0.
    """
    return "pip install '.[%s]' in a clone of Bloscpack" % extra


class BloscpackError(Exception):
    """Base class of every error that Bloscpack raises on purpose."""


class FormatError(BloscpackError):
    """Base class of the errors about the bytes of a file.

    Its subclasses are raised: `NotReadable` and `HeaderError`, which are a
    ``ValueError``, `DamageError`, which is a ``RuntimeError``, and `Unsupported`.

    Parameters
    ----------
    message
        Description of the problem, without the position.
    section
        Part of the file: ``'header'``, ``'metadata'``, ``'offsets'`` or ``'chunks'``.
    offset
        Position of the problem in bytes from the start of the file.
    chunk
        Number of the chunk, from 0.
    filename
        Name of the file.

    Notes
    -----
    The parameters are attributes; each position is None if it is unknown. ``str()`` of
    the error gives the message and the known positions.
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
        """Set the chunk, and the offset if it is unknown, unless a chunk is known.

        Parameters
        ----------
        chunk
            Number of the chunk.
        offset
            Position of the chunk in bytes from the start of the file.
        """
        if self.chunk is None:
            self.chunk = chunk
            self.offset = offset if self.offset is None else self.offset

    def __str__(self) -> str:
        positions = {
            "file '%s'": self.filename,
            "section '%s'": self.section,
            "chunk %d": self.chunk,
            "byte %d": self.offset,
        }
        known = [text % at for text, at in positions.items() if at is not None]
        return "%s (%s)" % (self.message, ", ".join(known)) if known else self.message


class NotReadable(FormatError, ValueError):
    """Raised if a file is no Bloscpack file, or no ``.npy`` file where one is expected.

    It is a ``ValueError``, as release 0.16 raised if the magic marker was missing. The
    attributes ``prefix`` and ``size`` are the first bytes and the size of a file that
    is no Bloscpack file, or None.
    """

    prefix: bytes | None = None
    size: int | None = None


class HeaderError(FormatError, ValueError):
    """Raised if the header of a file has the magic marker and an impossible field.

    It is a ``ValueError``, as release 0.16 raised for such a header.
    """


class DamageError(FormatError, RuntimeError):
    """Raised if a Bloscpack file is damaged: its bytes do not follow the format.

    It is a ``RuntimeError``, as release 0.16 raised for a wrong digest, and no
    ``ValueError``: programs take that for bytes that are not compressed.
    """


def metadata_damage(message: str, filename: str | None = None) -> DamageError:
    """Return the error about damaged metadata, or a damaged document of a dataset."""
    return DamageError(message, section="metadata", filename=filename)


class Unsupported(FormatError):
    """Raised if a file or dataset can't be read here, although it may be undamaged.

    It has an unknown version, needs a codec that the installed Blosc lacks, exceeds a
    limit, holds no array, or is a Zarr array of a structure that is not read here.
    """


class NotABloscpackFile(NotReadable, OSError):
    """Raised by a `BloscpackFile` that reads a file of another format.

    It is an ``OSError``, as gzip and bz2 raise. The message names the other format if
    it is known.
    """


class EndsTooEarly(DamageError, EOFError):
    """Raised by a `BloscpackFile` that reads a file of which the end is missing.

    It is an ``EOFError``, as gzip, bz2 and lzma raise.
    """


class UsageError(BloscpackError):
    """Raised if a call or a command line asks for something impossible.

    The attribute ``filename`` is the name of the file concerned, or None.
    """

    filename: str | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if self.filename is None:
            return text
        return "%s (file '%s')" % (text, self.filename)


class UsageValueError(UsageError, ValueError):
    """Raised if an argument has an impossible value.

    It is a ``ValueError``, as release 0.16 raised for such an argument.
    """


class UsageTypeError(UsageError, TypeError):
    """Raised if an argument has the wrong type.

    It is a ``TypeError``, as release 0.16 raised for such an argument.
    """


class StorageError(BloscpackError, OSError):
    """Raised if a file, pipe or disk fails, or changes while it is read or written.

    It is an ``OSError``, like the errors of the operating system.
    """


class NoSuchBlock(StorageError, KeyError):
    """Raised if a BigFile tree, or a block or group in it, does not exist.

    It is a ``KeyError``: ``tree['name']`` raises it.
    """


class DoesNotFit(UsageError, RuntimeError):
    """Raised if new data do not fit the array in a file, or an array no Zarr shard.

    It is a ``RuntimeError``, as release 0.16 raised if a file could not be appended to.
    """


class OffsetsRequired(UsageError, RuntimeError):
    """Raised if an operation, such as append, needs an offset table and there is none.

    It is a ``RuntimeError``, as release 0.16 raised in this case.
    """


# Names kept from 0.16, each with its base class of 0.16


class FileNotFound(StorageError):
    """Raised by the command if an input file does not exist.

    It is an ``OSError``, its base in 0.16, but not Python's ``FileNotFoundError``.
    """


class NoSuchChecksum(UsageValueError):
    """Raised if no checksum has the given name.

    It is a ``ValueError``, its base in 0.16.
    """


class NoSuchCodec(UsageValueError):
    """Raised if neither Blosc nor the metadata section has a codec of the given name.

    It is a ``ValueError``, its base in 0.16.
    """


class NoSuchSerializer(UsageValueError):
    """Raised if no metadata format has the given name.

    It is a ``ValueError``, its base in 0.16.
    """


class ChunkingException(UsageError):
    """Raised if an input has more chunks than a file can have.

    In 0.16 its base was ``BaseException``, which ``except Exception`` does not catch.
    """


class ChunkSizeTypeSizeMismatch(UsageValueError):
    """Raised if the chunk size is not a multiple of the item size of an array.

    It is a ``ValueError``, its base in 0.16.
    """


class ChecksumMismatch(DamageError):
    """Raised if a stored digest differs from the digest of the stored bytes.

    It is a ``RuntimeError``, its base in 0.16.
    """


class ChecksumLengthMismatch(DamageError):
    """Raised if a stored digest is longer or shorter than its checksum requires.

    It is a ``RuntimeError``, its base in 0.16.
    """


class FormatVersionMismatch(Unsupported, RuntimeError):
    """Raised if the version of a file is unknown, or too old to be appended to.

    It is a ``RuntimeError``, its base in 0.16.
    """


class NoMetadataFound(UsageError, RuntimeError):
    """Raised if metadata are to be replaced in a file without a metadata section.

    It is a ``RuntimeError``, its base in 0.16.
    """


class NoChangeInMetadata(UsageError, RuntimeError):
    """Raised if the new metadata are equal to those in the file.

    It is a ``RuntimeError``, its base in 0.16.
    """


class MetadataSectionTooSmall(UsageError, RuntimeError):
    """Raised if the space reserved in a metadata section is too small for the metadata.

    It is a ``RuntimeError``, its base in 0.16.
    """


class NonUniformTypesize(UsageError, RuntimeError):
    """Never raised: the chunks of a file may have different type sizes.

    Kept, with its base, for ``except`` clauses of old programs.
    """


class NotEnoughSpace(UsageError, RuntimeError):
    """Raised by append if the offset table has too few free entries.

    It is a ``RuntimeError``, its base in 0.16.
    """


class AnotherFileFollows(NotEnoughSpace):
    """Raised if a change would destroy another Bloscpack file behind the last chunk.

    It is a `NotEnoughSpace`, as in 0.16.
    """


class NotANumpyArray(Unsupported, RuntimeError):
    """Raised if an array is to be read from a file that holds no array.

    It is a ``RuntimeError``, its base in 0.16.
    """


class ObjectNumpyArrayRejection(UsageError, RuntimeError):
    """Raised if an array of Python objects is to be stored: its items are pointers.

    It is a ``RuntimeError``, its base in 0.16.
    """


class ObjectDtypeFound(FormatError, ObjectNumpyArrayRejection):
    """Raised if the metadata of a file describe an array of Python objects.

    It is an `ObjectNumpyArrayRejection`, as release 0.16 raised for objects.
    """
