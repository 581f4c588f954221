"""Which files are archives: damaged ones, too.

The modules that read archives are imported only for files that may be one.
"""

from __future__ import annotations

from ..constants import MAGIC
from ..exceptions import FormatError, UsageError

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._storage.base import Storage


def is_archive(storage: Storage) -> bool:
    """Return whether `savez` may have written the bytes, which may be damaged.

    The document of the group is their first member, or a member of the directory.
    """
    if storage.read_at(0, len(MAGIC)) == MAGIC:
        return False
    from .._format.zarr_metadata import ZARR_JSON
    from .._format.zip_format import LOCAL, LOCAL_SIGNATURE
    from .reading import members_of, read_directory

    name = ZARR_JSON.encode()
    head = storage.read_at(0, LOCAL.size + len(name))
    if head.startswith(LOCAL_SIGNATURE) and head.endswith(name):
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
