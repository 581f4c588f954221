"""The file system ``blp`` of fsspec: an array file as a Zarr store.

fsspec finds it through an entry point. Its files make up a Zarr group with one
array. The content of a chunk is read from its place in the `.blp` file; see
`bloscpack.references`.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from fsspec.implementations.reference import ReferenceFileSystem

from ..references import references

# Protocols of fsspec for files of this machine.
LOCAL = (None, "file", "local")
# The parameters that are those of `references`.
REFERENCES = {"zarr_format", "name", "dims", "flat", "unverified"}


class BloscpackFileSystem(ReferenceFileSystem):  # type: ignore[misc]
    """A Zarr store over the chunks of an array file, which stay where they are.

    ``fsspec.get_mapper("blp::URL")`` and ``fsspec.filesystem("blp", fo=PATH)`` make it.
    If the file changes later, a new instance is needed.

    Parameters
    ----------
    fo
        Path or URL of the file.
    target_protocol, target_options
        Protocol and options of the file system of the file; by default, the path or URL
        has the protocol.
    zarr_format, name, dims, flat, unverified
        As in `bloscpack.references`.
    options
        Other parameters of `ReferenceFileSystem`.

    Raises
    ------
    UsageError
        If Zarr can't read the chunks of the file in place; the message says why.
    """

    protocol = "blp"

    def __init__(
        self,
        fo: str | os.PathLike[str],
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        name_of_file = os.fspath(fo)
        if "://" not in name_of_file and target_protocol not in LOCAL:
            name_of_file = "%s://%s" % (target_protocol, name_of_file)
        given = {key: options.pop(key) for key in REFERENCES & options.keys()}
        found = references(name_of_file, storage_options=target_options, **given)
        options.setdefault("remote_protocol", target_protocol)
        remote = {"asynchronous": options.get("asynchronous", False)}
        options.setdefault("remote_options", {**(target_options or {}), **remote})
        super().__init__(found, **options)

    # fsspec would keep what is written in memory, where it is lost.

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            raise _read_only(path)
        return super()._open(path, mode=mode, **options)

    async def _refuse(self, path: Any, *args: Any, **options: Any) -> None:
        raise _read_only(path)

    async def _refuse_copy(self, source: str, path: str, **options: Any) -> None:
        raise _read_only(path)

    def refuse(self, path: Any, *args: Any, **options: Any) -> None:
        """Raise `OSError`: the file system can't be written."""
        raise _read_only(path)

    pipe_file = pipe = rm = refuse
    _pipe_file = _rm_file = _rm = _refuse
    _put_file = _cp_file = _refuse_copy


def _read_only(path: Any) -> OSError:
    return OSError(
        errno.EROFS, "the Zarr store of a Bloscpack file can't be written", str(path)
    )
