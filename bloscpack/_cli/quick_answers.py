"""``blpk --version`` and ``blpk info``, which have to be fast.

Neither NumPy nor Blosc is imported. `cli` calls `version` and `info` without the parser
if the command line is simple enough.
"""

from __future__ import annotations

from .. import log
from ..constants import BLOSC_HEADER_LENGTH
from ..exceptions import FormatError
from ..version import __version__
from .console import check_exists, console
from .exit_codes import Refusal

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._commit.snapshot import Check
    from .._format.sections import Beginning
    from .._storage.protocols import Seekable
    from .._storage.stream import Cursor
    from ..headers import BloscpackHeader
    from ..serializers import JsonObject

OFFSETS_SHOWN = 5
LINE_WIDTH = 90
# Maximum number of characters of metadata shown: pprint would take minutes for more.
MOST_SHOWN = 2**16


def log_metadata(metadata: object, size: int | None = None) -> None:
    """Show metadata with sorted keys; only the beginning if they are very long.

    `size` is their size as JSON in bytes, None if it is unknown.
    """
    log.normal("Metadata:")
    line = ""
    for piece in _sorted_repr(metadata):
        line += piece
        if len(line) > MOST_SHOWN:
            break
    if len(line) > MOST_SHOWN:
        line = "%s...\nThis is the beginning%s; 'blpk metadata FILE' shows all." % (
            line[:MOST_SHOWN],
            "" if size is None else " of %d bytes" % size,
        )
    elif len(line) > LINE_WIDTH:
        # Importing pprint takes as long as everything else in `blpk info`.
        import pprint

        line = pprint.pformat(metadata, width=LINE_WIDTH)
    log.normal(line)


def _sorted_repr(value: object) -> Iterator[str]:
    """Yield the repr of a value from JSON, piece by piece, keys sorted."""
    if isinstance(value, dict):
        mark = "{"
        for key in sorted(value):
            yield "%s%r: " % (mark, key)
            yield from _sorted_repr(value[key])
            mark = ", "
        yield "}" if value else "{}"
    elif isinstance(value, list):
        mark = "["
        for inner in value:
            yield mark
            yield from _sorted_repr(inner)
            mark = ", "
        yield "]" if value else "[]"
    else:
        yield repr(value)


def version() -> None:
    """Show the versions of Bloscpack, python-blosc and Blosc."""
    console.put(
        "bloscpack: '%s' python-blosc: '%s' blosc: '%s'\n"
        % (__version__, *_blosc_versions())
    )
    console.flush()  # the parser exits next


def _blosc_versions() -> tuple[str, str]:
    """Return the versions of python-blosc and Blosc.

    Importing the whole package takes longer than everything else in
    ``blpk --version``: load only the two modules that contain the versions.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    package = find_spec("blosc")
    if package is None or not package.submodule_search_locations:
        raise Refusal("python-blosc is not installed")
    versions = []
    for module, name in (
        ("version", "__version__"),
        ("blosc_extension", "BLOSC_VERSION_STRING"),
    ):
        spec = PathFinder.find_spec(module, list(package.submodule_search_locations))
        assert spec is not None
        loaded = module_from_spec(spec)
        spec.loader.exec_module(loaded)  # type: ignore[union-attr]
        versions.append(str(getattr(loaded, name)))
    return versions[0], versions[1]


def info(file_: str) -> None:
    """Show the sections in front of the chunks and the header of the first chunk."""
    from .._commit.snapshot import read_snapshot

    console.need_output()
    check_exists("file", file_)
    beginning, head, shard = read_snapshot(file_, _read_info, parts=True)
    _log_beginning(beginning)
    if shard is not None:
        log.normal("'shard':")
        log.normal(repr(shard))
    if head:
        _log_chunk_header(head)


def _read_info(
    fp: Seekable, check: Check
) -> tuple[Beginning, bytes, JsonObject | None]:
    """Return the sections in front of the chunks, and the header of the first chunk.

    The third value describes the shard that the file is, None if it is none.
    """
    from .._format.sections import read_beginning
    from .._storage.stream import Cursor

    cursor = Cursor(fp, to_end=True)
    size = cursor.left()
    beginning = read_beginning(cursor)
    head, shard = _first_chunk_header(cursor, beginning.header), None
    if isinstance(beginning.metadata, dict) and "shard" in beginning.metadata:
        from ..describe import describe_shard

        found = describe_shard(fp, beginning, cursor.position, size)
        shard = None if found is None else found.as_dict()
    check(beginning.header)
    return beginning, head, shard


def _first_chunk_header(cursor: Cursor, header: BloscpackHeader) -> bytes:
    """Return the checked header of the first chunk; no bytes if there is no chunk."""
    from .._format.blosc_header import decode_header

    head = bytes(cursor.peek(BLOSC_HEADER_LENGTH))
    if header.nchunks == 0 or (header.nchunks == -1 and not head):
        return b""
    try:
        decode_header(head)
    except FormatError as error:
        error.chunk, error.offset = 0, cursor.position
        raise
    return head


def _log_beginning(beginning: Beginning) -> None:
    log.normal(beginning.header.pformat())
    if beginning.offsets is not None:
        log.normal("'offsets':")
        shown = "".join("%d," % offset for offset in beginning.offsets[:OFFSETS_SHOWN])
        log.normal("[%s...]" % shown)
    if beginning.metadata_header is not None:
        log_metadata(beginning.metadata, beginning.metadata_header.meta_size)
        log.normal(beginning.metadata_header.pformat())


def _log_chunk_header(head: bytes) -> None:
    from .._format.blosc_header import decode_blosc_flags, decode_blosc_header

    fields = decode_blosc_header(head)
    # The repr of an OrderedDict depends on the Python version: show the form of 0.16.
    log.normal("First chunk blosc header:")
    log.normal("OrderedDict(%r)" % list(fields.items()))
    log.normal("First chunk blosc flags: ")
    log.normal("OrderedDict(%r)" % list(decode_blosc_flags(fields["flags"]).items()))
