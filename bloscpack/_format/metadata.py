"""The metadata section: a JSON value, optionally compressed, with reserved space.

Bytes to value and back, no files (docs/format.rst, Metadata). The section is
``header | stored text | rest of the reserved space | digest``; the digest covers the
stored text only.
"""

from __future__ import annotations

from .. import log
from ..args import MetadataArgs
from ..checksums import CHECKSUMS_LOOKUP
from ..constants import METADATA_HEADER_LENGTH
from ..defaults import (
    DEFAULT_META_CODEC,
    DEFAULT_META_LEVEL,
    DEFAULT_METADATA_LIMIT,
    DEFAULT_METADATA_VALUES,
)
from ..exceptions import (
    ChecksumMismatch,
    DamageError,
    MetadataSectionTooSmall,
    NoChangeInMetadata,
)
from ..headers import MetadataHeader
from ..metacodecs import CODECS_LOOKUP
from ..pretty import double_pretty_size
from ..serializers import SERIALIZERS_LOOKUP, has_more_values

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..serializers import Json

# Size in bytes of the pieces in which the room is written: it may have 4 GiB.
ROOM_BLOCK = 2**20


class Section:
    """An encoded section, without its room in memory.

    ``front`` is the header and the stored text, ``room`` the number of reserved bytes
    behind them, ``digest`` the digest of the text, and ``value`` the metadata.
    """

    def __init__(self, front: bytes, room: int, digest: bytes, value: object) -> None:
        self.front = front
        self.room = room
        self.digest = digest
        self.value = value

    @property
    def size(self) -> int:
        """The size of the section in bytes."""
        return len(self.front) + self.room + len(self.digest)

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the section; its unused room is filled with zeros.

        The blocks of the room are one object: a list of all blocks takes little memory.
        """
        yield self.front
        zeros = bytes(min(self.room, ROOM_BLOCK))
        for start in range(0, self.room, ROOM_BLOCK):
            yield zeros[: self.room - start]
        yield self.digest


def section_size(header: MetadataHeader) -> int:
    """Return the size of the section in bytes, header and digest included."""
    digest_size = CHECKSUMS_LOOKUP[header.meta_checksum].size
    return METADATA_HEADER_LENGTH + header.max_meta_size + digest_size


def encode_section(
    metadata: object, metadata_args: MetadataArgs | None = None
) -> Section:
    """Return the section that stores the value `metadata`.

    The text is stored uncompressed if the codec makes it longer. Raises `UsageError` if
    JSON cannot represent the value, and `MetadataSectionTooSmall` if the reserved space
    is smaller than the stored text.
    """
    args = MetadataArgs() if metadata_args is None else metadata_args
    args.check()
    text = SERIALIZERS_LOOKUP[args.magic_format].dumps(metadata).encode("ascii")
    meta_codec, stored = _compressed(text, args)
    log.debug(
        "Raw %scompressed metadata of size '%d': %r"
        % ("un" if meta_codec == "None" else "", len(stored), stored)
    )
    header = MetadataHeader(
        magic_format=args.magic_format,
        meta_checksum=args.meta_checksum,
        meta_codec=meta_codec,
        meta_level=args.meta_level,
        meta_size=len(text),
        max_meta_size=args.effective_max_meta_size(len(text)),
        meta_comp_size=len(stored),
    )
    room = header.max_meta_size - len(stored)
    if room < 0:
        raise MetadataSectionTooSmall(
            "metadata section is too small to contain the metadata "
            "required: %d allocated: %d" % (len(stored), header.max_meta_size)
        )
    digest = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    encoded = header.encode()
    log.debug("raw_metadata_header: %r", encoded)
    log.debug("metadata has %d preallocated empty bytes", room)
    log.debug("metadata checksum (%s): %r", header.meta_checksum, digest)
    if log.enabled(log.DEBUG):
        size = double_pretty_size(section_size(header))
        log.debug("metadata section occupies a total of %s", size)
    return Section(encoded + stored, room, digest, metadata)


def _compressed(text: bytes, args: MetadataArgs) -> tuple[str, bytes]:
    """Return the name of the codec to use, and `text` encoded with it."""
    if not args.should_compress:
        return "None", text
    compressed = args.meta_codec_impl.compress(text, args.meta_level)
    if len(text) > DEFAULT_METADATA_LIMIT(len(compressed)) or has_more_values(
        text, DEFAULT_METADATA_VALUES(len(compressed))
    ):
        log.debug("the metadata compress so well that readers would refuse them")
        return "None", text
    if len(compressed) > len(text):
        log.debug(
            "metadata compression requested, but it was not beneficial, "
            "deactivating (raw: '%d' vs. compressed: '%d') "
            % (len(text), len(compressed))
        )
        return "None", text
    return args.meta_codec, compressed


def check_header(header: MetadataHeader, limit: int | None = None) -> None:
    """Raise `FormatError` if the header breaks a rule of the format or the limit.

    `limit` is the maximum size in bytes of the decompressed metadata, by default
    `DEFAULT_METADATA_LIMIT` of the stored size.
    """
    limit = DEFAULT_METADATA_LIMIT(header.meta_comp_size) if limit is None else limit
    nbytes = max(header.meta_size, header.meta_comp_size)
    if header.magic_format not in SERIALIZERS_LOOKUP:
        expected = " or ".join(repr(name) for name in SERIALIZERS_LOOKUP)
        problem = "format must be %s, not %r" % (expected, header.magic_format)
    elif header.meta_options != "00000000":
        problem = "options must be '00000000', not '%s'" % header.meta_options
    elif header.user_codec:
        problem = "need the user codec %r, which is not known" % header.user_codec
    elif header.meta_comp_size > header.max_meta_size:
        sizes = header.meta_comp_size, header.max_meta_size
        problem = "take '%d' bytes, but the room for them is '%d'" % sizes
    elif nbytes > limit:
        sizes = limit, nbytes
        problem = "decompress to more than '%d' bytes: their header says '%d'" % sizes
    else:
        return
    raise DamageError("the metadata " + problem, section="metadata")


def decode(
    header: MetadataHeader,
    stored: bytes,
    digest: bytes,
    limit: int | None = None,
    max_values: int | None = None,
) -> Json:
    """Return the value of the text `stored`, after checking its digest.

    `max_values` is the maximum number of values and keys, by default
    `DEFAULT_METADATA_VALUES` of the stored size.

    Raises `ChecksumMismatch`, or another `FormatError` if the text contradicts the
    header, is not JSON, has too many values, or exceeds `limit`, as in `check_header`.
    """
    check_header(header, limit)
    expected = CHECKSUMS_LOOKUP[header.meta_checksum](stored)
    if digest != expected:
        raise ChecksumMismatch(
            "Checksum mismatch detected in metadata expected: %r, received: %r"
            % (digest, expected),
            section="metadata",
        )
    limit = DEFAULT_METADATA_LIMIT(len(stored)) if limit is None else limit
    text = CODECS_LOOKUP[header.meta_codec].decompress(stored, limit)
    if len(text) != header.meta_size:
        raise DamageError(
            "the metadata have '%d' bytes, but their header says '%d'"
            % (len(text), header.meta_size),
            section="metadata",
        )
    if log.enabled(log.VERBOSE):
        log.debug("metadata checksum OK (%s): %r", header.meta_checksum, digest)
        kind = "uncompressed" if header.meta_codec == "None" else "compressed"
        log.verbose("read %s metadata of size: '%d'" % (kind, len(stored)))
    if max_values is None:
        max_values = DEFAULT_METADATA_VALUES(len(stored))
    return SERIALIZERS_LOOKUP[header.magic_format].loads(text, max_values)


def encode_again(
    metadata: object, old_metadata: object, old_header: MetadataHeader
) -> Section:
    """Return a section of the same size that replaces the section with `old_header`.

    Raises `NoChangeInMetadata` if the values are equal, and `MetadataSectionTooSmall`
    if the reserved space is smaller than the stored text.
    """
    dumps = SERIALIZERS_LOOKUP[old_header.magic_format].dumps
    # Compare the texts too: 1 == True in Python.
    if metadata == old_metadata and dumps(metadata) == dumps(old_metadata):
        raise NoChangeInMetadata(
            "you requested to update metadata, but this has not changed"
        )
    args = MetadataArgs(
        magic_format=old_header.magic_format,
        meta_checksum=old_header.meta_checksum,
        meta_codec=DEFAULT_META_CODEC,
        meta_level=DEFAULT_META_LEVEL,
        max_meta_size=old_header.max_meta_size,
    )
    return encode_section(metadata, args)
