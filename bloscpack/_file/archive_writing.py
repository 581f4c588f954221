"""New archives: arrays are compressed straight into the members of a ZIP file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

import numpy

from .._format.array_metadata import grid_for
from .._format.dtypes import Array
from .._format.grid import Grid
from .._format.shard import count_slots, row_nbytes
from .._format.zarr_metadata import ArrayDocument
from .._format.zip_format import (
    Member,
    encode_directory,
    encode_local,
    join_crc,
    new_member,
)
from .._storage.base import write_all
from .._types import BinaryFile, Buffer, StorageOptions, Writable
from ..exceptions import UsageError, UsageTypeError, UsageValueError
from ..file_io import CompressedFPSink, is_seekable
from ..numpy_io import as_shard, pack_ndarray, storable
from .archive_reading import BLP, document_name

# The only checksum of a shard in an archive: every Zarr reader verifies it.
CHECKSUM = "crc32c"
# Number of bytes of a member that are kept in memory for its checksum.
KEPT_NBYTES = 2**16
# Number of bytes that are copied from a temporary file at a time.
COPY_NBYTES = 2**20
# Keywords of the functions that pack a single array which are no settings here.
NO_SETTINGS = ("metadata", "shard")


class ArchiveSettings:
    """The settings of an archive.

    ``packing`` are keywords of `pack_ndarray`, the others those of `replacing`.
    """

    def __init__(self, given: Mapping[str, Any] | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise UsageTypeError(
                "settings: expected a dictionary of settings, found %r; save(file, "
                "{'settings': array}) stores an array of this name"
                % type(given).__name__
            )
        self.packing = dict(given or {})
        for name in NO_SETTINGS:
            if name in self.packing:
                raise UsageValueError("'%s' is no setting of save and savez" % name)
        self.sync: bool | None = self.packing.pop("sync", None)
        self.storage_options: StorageOptions | None = self.packing.pop(
            "storage_options", None
        )


class MemberSink(CompressedFPSink):
    """Writes a `.blp` file as the member of an archive, and computes its crc32.

    The bytes in front of the first chunk are kept in memory: some of them, the entries
    of the offset table, are written again at the end. All bytes of a short file are
    kept: its checksum then takes one call.
    """

    def __init__(self, output_fp: Writable) -> None:
        super().__init__(output_fp)
        self._front = bytearray()
        self._rest_crc = 0

    def _write(self, data: Buffer) -> None:
        has_rest = self._position > len(self._front)
        if not self._nput or (not has_rest and self._position < KEPT_NBYTES):
            self._front += data
        else:
            self._rest_crc = crc32(data, self._rest_crc)
        super()._write(data)

    def _overwrite(self, back: int, data: bytes) -> None:
        start = self._position - back
        assert start + len(data) <= len(self._front)
        self._front[start : start + len(data)] = data
        super()._overwrite(back, data)

    @property
    def size(self) -> int:
        """Number of bytes of the member."""
        return self._position

    @property
    def crc(self) -> int:
        """The crc32 of the member."""
        rest = self._position - len(self._front)
        return join_crc(crc32(self._front), self._rest_crc, rest)


class ArchiveWriter:
    """Writes an archive to a file object that can seek, from its position on."""

    def __init__(self, fp: BinaryFile) -> None:
        self._fp = fp
        self._start = fp.tell()
        self._members: list[Member] = []

    def add_bytes(self, name: str, content: bytes) -> None:
        """Write a member."""
        member = self._begin(name)
        member.size, member.crc = len(content), crc32(content)
        write_all(self._fp, encode_local(member) + content)

    def add_array(
        self, name: str, array: object, settings: Mapping[str, object]
    ) -> None:
        """Compress an array into members: a shard and its document, or a `.blp` file.

        `settings` are keywords of `pack_ndarray`. Raises its errors, with the name.
        """
        try:
            if isinstance(array, Mapping):
                raise UsageTypeError(
                    "expected an array, found %r: arrays in groups have names with "
                    "slashes, such as '%s/NAME'" % (type(array).__name__, name)
                )
            self._add(name, storable(numpy.asanyarray(array)), settings)
        except UsageError as error:
            error.args = ("array '%s': %s" % (name, error.args[0]),)
            raise

    def _add(self, name: str, array: Array, settings: Mapping[str, Any]) -> None:
        array, settings = as_shard(array, settings)
        if not settings["shard"]:
            self._pack(name + BLP, array, settings)
            return
        if settings.get("bloscpack_args") is None:
            settings.setdefault("max_app_chunks", 0)
        shard = name + "/c" + array.ndim * "/0"
        sink = self._pack(shard, array, settings)
        header, used = sink.bloscpack_header, sink.blosc_args
        if header.checksum != CHECKSUM:
            raise UsageValueError(
                "the checksum of arrays in an archive is '%s', which Zarr verifies; "
                "found the setting '%s'" % (CHECKSUM, header.checksum)
            )
        if "chunks" in settings:
            grid = grid_for(array, settings["chunks"])
        else:
            rows = settings["chunk_size"] // row_nbytes(array)
            grid = Grid.of_rows(array.shape, rows, count_slots(header))
        document = ArrayDocument(
            array.dtype,
            grid,
            blosc={
                "cname": used.cname,
                "clevel": used.clevel,
                "shuffle": int(used.shuffle),
            },
        )
        # Shorter than `encode` makes it, and ten times as fast.
        # Far below the limits of `encode_document`: it has no attributes.
        text = json.dumps(document.document(), separators=(",", ":"), allow_nan=False)
        self.add_bytes(document_name(name), text.encode())

    def _pack(self, name: str, array: Array, settings: Mapping[str, Any]) -> MemberSink:
        member = self._begin(name)
        write_all(self._fp, encode_local(member))
        sink = MemberSink(self._fp)
        pack_ndarray(array, sink, **settings)
        member.size, member.crc = sink.size, sink.crc
        header = encode_local(member)
        back = sink.size + len(header)
        self._fp.seek(-back, os.SEEK_CUR)
        write_all(self._fp, header)
        self._fp.seek(back - len(header), os.SEEK_CUR)
        return sink

    def _begin(self, name: str) -> Member:
        member = new_member(name)
        member.offset = self._fp.tell() - self._start
        self._members.append(member)
        return member

    def finish(self) -> None:
        """Write the directory."""
        start = self._fp.tell() - self._start
        write_all(self._fp, encode_directory(self._members, start))


def write_archive(fp: Any, write: Callable[[ArchiveWriter], None]) -> None:
    """Write an archive to a file object, in one go if it can't seek."""
    # An upload in parts lets only bytes in its first part be written again.
    if is_seekable(fp) and not hasattr(fp, "insert"):
        writer = ArchiveWriter(fp)
        write(writer)
        writer.finish()
        return
    with tempfile.TemporaryFile() as spool:
        write_archive(spool, write)
        spool.seek(0)
        for block in iter(lambda: spool.read(COPY_NBYTES), b""):
            write_all(fp, block)
