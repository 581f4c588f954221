"""Append to a file that has no room for the new chunks or the new metadata.

A copy with more room replaces the file. The new chunks are appended to the copy before
it gets the name of the file.
"""

from __future__ import annotations

from .. import log
from .._crashsafe.in_place import changeable
from .._format.append_plan import (
    UNCHANGED,
    check_appendable,
    count_added_chunks,
    plan_append,
)
from ..constants import FORMAT_VERSION
from ..defaults import (
    DEFAULT_MAGIC_FORMAT,
    DEFAULT_MAX_APP_CHUNKS,
    DEFAULT_MAX_META_SIZE,
)
from ..exceptions import (
    MetadataSectionTooSmall,
    NoMetadataFound,
    NotEnoughSpace,
    OffsetsRequired,
)
from ..headers import BloscpackHeader
from ..serializers import SERIALIZERS_LOOKUP, replaced_metadata
from .chunks import append_chunks, checked_size
from .metadata import read_sections

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._crashsafe.locking import LockedFile
    from .._format.sections import Beginning
    from .._repacking.plan import Settings
    from .._storage.protocols import Readable
    from .chunks import AppendSettings

# Number of bytes by which the metadata of an array may get longer when its shape grows.
MORE_DIGITS = 20


def lacks_room(locked_file: LockedFile, new_size: int, metadata: object) -> bool:
    """Return whether only a file with more room can take the bytes or the metadata."""
    beginning, first = read_sections(locked_file)
    header = beginning.header
    sizes = header.nchunks, header.chunk_size, header.last_chunk
    if header.format_version != FORMAT_VERSION or -1 in sizes:
        return True
    try:
        check_appendable(header)
        plan_append(beginning, [first] * 3, checked_size(new_size), metadata)
    except (OffsetsRequired, NotEnoughSpace, NoMetadataFound, MetadataSectionTooSmall):
        return True
    return False


def append_to_copy(
    locked_file: LockedFile,
    new_content_fp: Readable,
    new_size: int,
    how: AppendSettings,
) -> None:
    """Replace the file by a copy with more room, to which the bytes are appended."""
    from .._repacking.plan import Plan
    from .._repacking.survey import Survey
    from .._repacking.writing import write_planned

    old = Survey(locked_file.fp)
    nchunks, chunk_size, last_chunk = old.cut
    sizes = BloscpackHeader(
        chunk_size=chunk_size, last_chunk=last_chunk, nchunks=nchunks
    )
    added = count_added_chunks(sizes, new_size, old.beginning.metadata)
    log.verbose("rewriting the file to make room for '%d' chunks" % added)
    wanted = _metadata_with_room(old.beginning, how.metadata)
    wanted["max_app_chunks"] = added + DEFAULT_MAX_APP_CHUNKS(nchunks + added)
    plan = Plan(old, wanted)
    if how.expect is not None:
        _, _, last_chunk = plan.cut
        how.expect(old.nbytes + last_chunk + new_size)
        how.expect = None
    with locked_file.replacement() as temporary:
        write_planned(
            old, plan, locked_file.fp, temporary.fp, how.nthreads, how.progress
        )
        with temporary.reopened() as fp, changeable(fp) as target:
            append_chunks(target, new_content_fp, new_size, how)


def _metadata_with_room(old: Beginning, new: object) -> Settings:
    """Return the settings of a copy that has room for the metadata of an append."""
    if old.metadata_header is None and new is UNCHANGED:
        return {}
    serializer = SERIALIZERS_LOOKUP[DEFAULT_MAGIC_FORMAT]
    given = old.metadata if new is UNCHANGED else new
    wanted = serializer.dumps(replaced_metadata(old.metadata, given))
    # The shape of an array may get more digits.
    size = max(DEFAULT_MAX_META_SIZE(len(wanted)), len(wanted) + MORE_DIGITS)
    if old.metadata_header is None:
        # Any value; the append replaces it.
        return {"metadata": "" if new != "" else 0, "max_meta_size": size}
    return {"max_meta_size": max(size, old.metadata_header.max_meta_size)}
