"""Replace the metadata section of a file, in place or by rewriting the file."""

from __future__ import annotations

import os

from .._format.append_plan import plan_metadata
from .._format.sections import read_beginning
from .._storage.cursor import Cursor
from ..constants import BLOSCPACK_HEADER_LENGTH
from ..exceptions import MetadataSectionTooSmall, NoMetadataFound

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._crashsafe.in_place import Change, FileObjectTarget
    from .._crashsafe.locking import LockedFile
    from .._format.metadata import Section
    from .._format.sections import Beginning

    # A file that is changed in place.
    Target = FileObjectTarget | LockedFile


def read_sections(target: Target) -> tuple[Beginning, int]:
    """Return the sections of a file, and the position of its first chunk."""
    target.fp.seek(0)
    cursor = Cursor(target.fp)
    return read_beginning(cursor), cursor.position


def replace_metadata(target: Target, metadata: object) -> None:
    """Replace the metadata in the space reserved for them."""
    beginning, first_chunk = read_sections(target)
    section = plan_metadata(beginning, beginning.header, 0, metadata)
    if section is None:
        return
    section_end = BLOSCPACK_HEADER_LENGTH + section.size
    unchanged = first_chunk, target.fp.seek(0, os.SEEK_END)
    new_beginning = beginning_blocks(beginning.header.encode(), section)
    with target.change([(0, section_end)], new_beginning, unchanged) as change:
        overwrite_section(change, section)


def beginning_blocks(header: bytes, section: Section | None) -> list[bytes]:
    """Return the bytes before the offset table in blocks: the section may be large."""
    return [header] if section is None else [header, *section.blocks()]


def overwrite_section(change: Change, section: Section) -> None:
    """Write a metadata section over the one in the file."""
    position = BLOSCPACK_HEADER_LENGTH
    for block in section.blocks():
        change.overwrite(position, block)
        position += len(block)


def rewrite_or_grow(locked_file: LockedFile, metadata: object, grow: bool) -> None:
    """Replace the metadata; with `grow`, by a larger file if there is no room."""
    try:
        replace_metadata(locked_file, metadata)
    except (NoMetadataFound, MetadataSectionTooSmall):
        if not grow:
            raise
        from ..repacking import repack_fp

        with locked_file.replacement() as temporary:
            repack_fp(locked_file.fp, temporary.fp, metadata=metadata)
