"""Functions that make the compression or the format "blp" known to other libraries.

Strategy: each library calls `BloscpackFile` with a file object and a mode. Each
function may be called any number of times, and replaces what an earlier call has
registered.
"""

from __future__ import annotations

import os

from ..exceptions import UsageError
from ..file_object import BloscpackFile

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from logging import Logger
    from tarfile import TarInfo
    from typing import Any

# Name of the compression, and the extension of files that have it.
NAME = "blp"
# Name and extension of the archive format.
ARCHIVE_NAME = "blptar"
ARCHIVE_EXTENSION = ".tar.blp"


class RegisteredName(str):
    """The name of a compression; a process that unpickles it registers it."""

    _register: Callable[[], str]

    def __new__(cls, register: Callable[[], str]) -> RegisteredName:
        self = super().__new__(cls, NAME)
        self._register = register
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return self._register, ()


def register_fsspec() -> str:
    """Register the compression ``"blp"`` of fsspec, and return its name.

    ``fsspec.open(..., compression="infer")`` then uses it for names that end with
    ``.blp``, and so do programs that open files through fsspec, such as Dask.

    A process that unpickles the result, or a file of fsspec whose compression was
    inferred, registers it. So does each process that imports Dask.

    Raises
    ------
    UsageError
        If fsspec is not installed.
    """
    try:
        from fsspec.compression import register_compression
    except ImportError as error:
        raise _missing("fsspec", "remote") from error
    name = RegisteredName(register_fsspec)
    register_compression(name, BloscpackFile, NAME, force=True)
    return name


def register_in_dask(sizeof: object) -> None:
    """Register the compression in a process of Dask, which calls this when it starts.

    Dask calls this through the entry points of the group ``dask.sizeof``. No other hook
    runs in each worker, and a worker that doesn't know a compression fails.
    """
    register_fsspec()


def register_joblib() -> str:
    """Register the compression ``"blp"`` of joblib, and return its name.

    ``joblib.dump(value, file, compress=("blp", 3))`` then writes a `.blp` file, and
    ``joblib.load(file)`` reads it. A process that unpickles the result registers it.

    Raises
    ------
    UsageError
        If joblib is not installed.
    """
    try:
        from joblib import register_compressor
        from joblib.compressor import CompressorWrapper
    except ImportError as error:
        raise _missing("joblib", "joblib") from error
    from ..constants import MAGIC

    wrapper = CompressorWrapper(BloscpackFile, prefix=MAGIC, extension="." + NAME)
    register_compressor(NAME, wrapper, force=True)
    return RegisteredName(register_joblib)


def _missing(library: str, extra: str) -> UsageError:
    return UsageError(
        "the Python package '%s' is not installed: pip install 'bloscpack[%s]'"
        % (library, extra)
    )


# Archives


def register_shutil() -> None:
    """Register the archive format ``"blptar"`` of `shutil`, for ``.tar.blp`` files.

    ``shutil.make_archive("name", "blptar", folder)`` then writes ``name.tar.blp``, and
    ``shutil.unpack_archive("name.tar.blp", folder)`` reads it.
    """
    import shutil

    text = "tar file compressed with Bloscpack"
    if ARCHIVE_NAME in dict(shutil.get_archive_formats()):
        shutil.unregister_archive_format(ARCHIVE_NAME)
    shutil.register_archive_format(ARCHIVE_NAME, make_archive, description=text)
    if ARCHIVE_NAME in [entry[0] for entry in shutil.get_unpack_formats()]:
        shutil.unregister_unpack_format(ARCHIVE_NAME)
    shutil.register_unpack_format(
        ARCHIVE_NAME, [ARCHIVE_EXTENSION], unpack_archive, description=text
    )


def make_archive(
    base_name: str,
    base_dir: str,
    owner: str | None = None,
    group: str | None = None,
    dry_run: bool = False,
    logger: Logger | None = None,
) -> str:
    """Write the folder `base_dir` to an archive and return its name; shutil calls this.

    The archive appears under its name when it is complete.
    """
    import tarfile

    def with_owner(member: TarInfo) -> TarInfo:
        if owner is not None:
            member.uid, member.uname = _user_id(owner), owner
        if group is not None:
            member.gid, member.gname = _group_id(group), group
        return member

    name = base_name + ARCHIVE_EXTENSION
    if logger is not None:
        logger.info("creating the archive %s", name)
    if not dry_run:
        # Listed first: the unfinished archive may be in the same folder.
        paths = list(_tree(base_dir))
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with (
            BloscpackFile(name, "wb") as file,
            tarfile.open(fileobj=file, mode="w") as archive,
        ):
            for path in paths:
                archive.add(path, recursive=False, filter=with_owner)
    return name


def _tree(path: str) -> Iterator[str]:
    """Yield a path, and those of all files and folders in it."""

    def fail(error: OSError) -> None:
        raise error

    yield path
    if not os.path.isdir(path):
        return
    for parent, folders, files in os.walk(path, onerror=fail):
        yield from (os.path.join(parent, name) for name in sorted(folders + files))


def _user_id(name: str) -> int:
    import pwd

    return pwd.getpwnam(name).pw_uid


def _group_id(name: str) -> int:
    import grp

    return grp.getgrnam(name).gr_gid


def unpack_archive(name: str, folder: str, **options: Any) -> None:
    """Extract an archive to a folder; shutil calls this.

    By default, members that would be stored outside of the folder are refused, if this
    Python can do that.
    """
    import tarfile

    if hasattr(tarfile, "data_filter"):
        options.setdefault("filter", "data")
    with BloscpackFile(name) as file, tarfile.open(fileobj=file, mode="r|") as archive:
        archive.extractall(folder, **options)
