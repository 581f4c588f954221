"""ZIP files of other programs, which the module `zipfile` reads.

Strategy: the errors of `zipfile` become ours, with the name of the file. The size that
a directory states is compared with the stored bytes before anything is allocated.
"""

from __future__ import annotations

import errno
import os
import struct
import zipfile
import zlib

from ..._format.zip_format import LOCAL_SIGNATURE
from ...exceptions import BloscpackError, DamageError, NotReadable

try:
    from lzma import LZMAError
except ImportError:  # Python was built without it
    LZMAError = zipfile.BadZipFile  # type: ignore

from typing import IO

# Maximum number of plain bytes for each stored byte of a member, by its method. Deflate
# reaches 1032 at most. The other methods have no limit of their own: `OTHER_RATIO`
# bounds the sizes that a member may claim.
MAX_RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
OTHER_RATIO = 2**20
# A message about wrong bytes, with the error of `zipfile`.
DAMAGED = "the ZIP file is damaged: %s"
# The errors that `zipfile` and the modules that it uses raise for wrong bytes.
WRONG_BYTES = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, struct.error),
    *(EOFError, ValueError, OverflowError, LookupError),
)


class ZipErrors:
    """Turns the errors about the bytes of a ZIP file into `FormatError`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, BloscpackError):
            return
        if isinstance(error, Exception) and _is_damage(error):
            raise DamageError(DAMAGED % error, filename=self._name) from error
        if isinstance(error, RuntimeError):  # encrypted, or an unknown method
            text = "this ZIP file is not supported: %s" % error
            raise NotReadable(text, filename=self._name) from error


def _is_damage(error: Exception) -> bool:
    """Return whether an error is about wrong bytes."""
    # The module `bz2` raises an OSError without a number, and so does a seek to a
    # negative offset, or one with the number EINVAL.
    return isinstance(error, WRONG_BYTES) or (
        isinstance(error, OSError) and error.errno in (None, errno.EINVAL)
    )


def is_zip(path: str, begin: bytes) -> bool:
    """Return whether a file is a ZIP file; `begin` are its first bytes.

    Raises `FormatError` if only its end is missing.
    """
    with ZipErrors(path):
        if begin.startswith(b"PK") and zipfile.is_zipfile(path):
            return True
    if begin.startswith(LOCAL_SIGNATURE):
        text = DAMAGED % "expected an end record, found none: the file was cut off"
        raise DamageError(text, filename=path)
    return False


def open_zip(file: str | IO[bytes], name: str) -> zipfile.ZipFile:
    """Open a ZIP file; raise `FormatError` if a member can't have the stated size."""
    with ZipErrors(name):
        archive = zipfile.ZipFile(file)
    assert archive.fp is not None
    size = archive.fp.seek(0, os.SEEK_END)
    for info in archive.infolist():
        ratio = MAX_RATIOS.get(info.compress_type, OTHER_RATIO)
        if info.compress_size > size or info.file_size > info.compress_size * ratio:
            archive.close()
            raise DamageError(
                "the member %.200r can't have '%d' bytes, which '%d' stored bytes in a "
                "file of '%d' hold"
                % (info.filename, info.file_size, info.compress_size, size),
                filename=name,
            )
    return archive
