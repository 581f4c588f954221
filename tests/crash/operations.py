"""Operations of Bloscpack on small files, to be tried with every crash and fault.

Each `Operation` changes the file TARGET in its own folder. Its `see` returns the
content that a reader finds there, and its `follow` runs a later writer.
"""

from __future__ import annotations

import contextlib
import os
import struct
import warnings
import zipfile

import blosc
import numpy as np
from builders import numbers, packed

import bloscpack
from bloscpack.append import append, rewrite_metadata
from bloscpack.args import BloscArgs, BloscpackArgs
from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.recover import recover
from bloscpack.repacking import repack

TARGET = "file.blp"
crc32c = CHECKSUMS_LOOKUP["crc32c"]
# The place of the options in a header, and their bit for an undo record.
OPTIONS, BIT = 5, 4


def has_undo_record(content):
    """Return whether a file tells that it ends with an undo record."""
    return content[:OPTIONS] == b"blpk\3" and bool(content[OPTIONS] & BIT)


MORE = bytes(range(200)) * 8


def pack(path, plain, chunk_size=1000, room=60, checksum="adler32", **options):
    bloscpack.pack_bytes_to_file(
        plain,
        path,
        chunk_size,
        bloscpack_args=BloscpackArgs(checksum=checksum, max_app_chunks=room),
        nthreads=1,
        sync=False,
        **options,
    )


def refill(path, content):
    """Give a file, which stays the same file, another content.

    Not by cutting it at 0 first: some file systems then write to the disk at once.
    """
    with open(path, "r+b" if os.path.exists(path) else "wb") as fp:
        fp.write(content)
        fp.truncate()


def quietly(function, *arguments, **options):
    """Call a function that may say that it has put a file back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(*arguments, **options)


class Operation:
    """What is done to the file TARGET in a folder; `inputs` is a folder for its input.

    ``synced`` says that the end of the machine is covered too, ``puts_back`` that a
    part of it is to undo what was done before.
    """

    synced = True
    puts_back = False

    def prepare(self, folder):
        """Make what is there before."""

    def provide(self, inputs):
        """Make what it reads."""

    def run(self, folder, inputs):
        """Do what may be interrupted."""
        raise NotImplementedError

    def see(self, folder):
        """Return what a reader finds; None if there is nothing."""
        path = folder / TARGET
        if not path.exists():
            return None
        return bloscpack.unpack_bytes_from_file(path, nthreads=1)

    def follow(self, folder, inputs):
        """Do what a later writer does."""
        if not (folder / TARGET).exists():
            pack(folder / TARGET, MORE)
            return
        (inputs / "more").write_bytes(MORE)
        quietly(append, folder / TARGET, inputs / "more", nthreads=1, sync=False)


class Compress(Operation):
    """Compress to a new file, or over an old one."""

    def __init__(self, replace, sync):
        self.replace, self.sync = replace, sync
        self.synced = sync is True or (replace and sync is None)

    def prepare(self, folder):
        if self.replace:
            pack(folder / TARGET, numbers(2500))

    def provide(self, inputs):
        # More than a buffer takes at a time.
        (inputs / "plain").write_bytes(np.random.default_rng(1).bytes(20000))

    def run(self, folder, inputs):
        bloscpack.pack_file_to_file(
            inputs / "plain", folder / TARGET, 1000, nthreads=1, sync=self.sync
        )


class Decompress(Operation):
    """Decompress over an old file of plain bytes."""

    def prepare(self, folder):
        (folder / TARGET).write_bytes(b"old")

    def provide(self, inputs):
        pack(inputs / "packed.blp", numbers(3500))

    def run(self, folder, inputs):
        bloscpack.unpack_file_from_file(
            inputs / "packed.blp", folder / TARGET, nthreads=1
        )

    def see(self, folder):
        return (folder / TARGET).read_bytes()

    follow = run


class Recover(Decompress):
    """Recover what is left of a damaged file over an old one."""

    def provide(self, inputs):
        pack(inputs / "damaged.blp", numbers(5500))
        content = bytearray((inputs / "damaged.blp").read_bytes())
        content[len(content) // 2] ^= 1
        (inputs / "damaged.blp").write_bytes(content)

    def run(self, folder, inputs):
        recover(inputs / "damaged.blp", folder / TARGET, nthreads=1)

    follow = run


class Append(Operation):
    """Append `nbytes` to a file of `old` bytes that was packed with `options`."""

    grow = False

    def __init__(
        self, old=2500, nbytes=100, sync=True, new=None, recompress=None, **options
    ):
        self.old, self.nbytes, self.synced = old, nbytes, sync
        self.new, self.recompress, self.options = new, recompress, options

    def prepare(self, folder):
        pack(folder / TARGET, numbers(self.old), **self.options)

    def provide(self, inputs):
        (inputs / "new").write_bytes(numbers(self.nbytes, 5))

    def run(self, folder, inputs):
        options = {} if self.new is None else {"metadata": self.new}
        append(
            folder / TARGET,
            inputs / "new",
            self.recompress,
            nthreads=1,
            sync=self.synced,
            grow=self.grow,
            **options,
        )


class AppendToArray(Append):
    """Append rows to an array, whose shape is in the metadata."""

    def prepare(self, folder):
        array = np.arange(1000, dtype="<i4").reshape(100, 10)
        bloscpack.pack_ndarray_to_file(array, folder / TARGET, 1000, nthreads=1)


def pack_rows(path, nrows, shard=True, **settings):
    """Make a file of an array whose chunks have ten rows of 400 bytes."""
    array = np.arange(nrows * 100, dtype="<i4").reshape(nrows, 100)
    settings = {"nthreads": 1, "sync": False, "max_app_chunks": 60, **settings}
    bloscpack.pack_ndarray_to_file(array, path, 4000, shard=shard, **settings)


class OnShard(Operation):
    """Change an array that is a Zarr shard too.

    `see` also reads the file as Zarr does, by its index, if no change is under way.
    """

    def prepare(self, folder):
        pack_rows(folder / TARGET, 25, metadata={"state": "old", "n": [1] * 9})

    def see(self, folder):
        plain, metadata = super().see(folder)
        if not has_undo_record((folder / TARGET).read_bytes()):
            content = (folder / TARGET).read_bytes()
            found = read_by_index(content)
            assert found is None or found[: len(plain)] == plain
            # A file that is never changed in place has a complete index.
            is_shard = "shard" in metadata
            assert found is not None or self.in_place or not is_shard
            assert is_shard or b"shard\0\0\0" not in content
        return plain, metadata

    # Whether the file is changed, and not replaced.
    in_place = False

    def follow(self, folder, inputs):
        (inputs / "more").write_bytes(bytes(400))
        path = folder / TARGET
        more = inputs / "more"
        quietly(append, path, more, nthreads=1, sync=False, grow=True)
        if "shard" in bloscpack.info(path).metadata:
            assert read_by_index(path.read_bytes()) is not None
        assert bloscpack.verify(path).findings == []


class AppendToShard(OnShard, Append):
    """Append rows to a Zarr shard, from a file or as an array."""

    in_place = True

    def __init__(self, before=25, grow=False, as_array=False, lost=False, **options):
        super().__init__(**options)
        self.before, self.grow = before, grow
        self.as_array, self.lost = as_array, lost

    def prepare(self, folder):
        pack_rows(
            folder / TARGET,
            self.before,
            blosc_args=self.options.get("blosc_args"),
            metadata=self.options.get("metadata"),
            max_app_chunks=0 if self.grow else 60,
        )
        if self.lost:  # as after an append with an old release
            content = (folder / TARGET).read_bytes()
            refill(folder / TARGET, content[: content.index(b"shard\0\0\0")])

    def provide(self, inputs):
        (inputs / "new").write_bytes(numbers(400 * self.nbytes, 5))

    def run(self, folder, inputs):
        settings = {"nthreads": 1, "sync": self.synced, "grow": self.grow}
        if self.new is not None:
            settings["metadata"] = self.new
        if self.as_array:
            rows = np.frombuffer((inputs / "new").read_bytes(), "<i4").reshape(-1, 100)
            bloscpack.append_ndarray_to_file(rows, folder / TARGET, **settings)
        else:
            append(folder / TARGET, inputs / "new", self.recompress, **settings)


class AppendToGrid(AppendToShard):
    """Append rows to an array whose chunks divide every axis, as a shard or not."""

    def __init__(self, shard=False, **options):
        super().__init__(as_array=True, **options)
        self.is_shard = shard

    def prepare(self, folder):
        rows = np.frombuffer(numbers(400 * self.before), "<i4").reshape(-1, 100)
        bloscpack.pack_ndarray_to_file(
            rows,
            folder / TARGET,
            chunks=(10, 30),
            shard=self.is_shard,
            max_app_chunks=0 if self.grow else 60,
        )

    def see(self, folder):
        return Operation.see(self, folder)

    def follow(self, folder, inputs):
        rows = np.zeros((1, 100), "<i4")
        quietly(bloscpack.append_ndarray_to_file, rows, folder / TARGET, sync=False)
        assert not bloscpack.verify(folder / TARGET).findings


class RepackShard(OnShard):
    """Rewrite a Zarr shard, or make a file one or an ordinary one."""

    def __init__(self, before=True, **settings):
        self.before, self.settings = before, settings

    def prepare(self, folder):
        pack_rows(folder / TARGET, 25, shard=self.before)

    def run(self, folder, inputs):
        repack(folder / TARGET, nthreads=1, **self.settings)


class RecoverShard(OnShard):
    """Recover a shard whose trailer is damaged over another shard."""

    def prepare(self, folder):
        pack_rows(folder / TARGET, 25)

    def provide(self, inputs):
        pack_rows(inputs / "damaged.blp", 37)
        content = bytearray((inputs / "damaged.blp").read_bytes())
        content[-1] ^= 1
        (inputs / "damaged.blp").write_bytes(content)

    def run(self, folder, inputs):
        recover(inputs / "damaged.blp", folder / TARGET, nthreads=1)

    def follow(self, folder, inputs):
        self.run(folder, inputs)
        assert read_by_index((folder / TARGET).read_bytes()) is not None


def read_by_index(content):
    """Return the plain bytes that Zarr finds in a shard; None if it fails."""
    nslots = sum(struct.unpack_from("<2q", content, 16))
    index = content[-4 - 16 * nslots : -4]
    if crc32c(index) != content[-4:]:
        return None
    parts = []
    for offset, nbytes in struct.iter_unpack("<QQ", index):
        if offset < 2**64 - 1:
            chunk = content[offset : offset + nbytes]
            if crc32c(chunk[:-4]) != chunk[-4:]:
                return None
            parts.append(blosc.decompress(chunk[:-4]))
    return b"".join(parts)


class AppendAndGrow(Append):
    """Append more chunks than a file has room for: a larger file replaces it."""

    grow = True

    def follow(self, folder, inputs):
        (inputs / "more").write_bytes(MORE)
        options = {"nthreads": 1, "sync": False, "grow": True}
        quietly(append, folder / TARGET, inputs / "more", **options)


class AppendToPiped(AppendAndGrow):
    """Append to a file without offsets, whose header may not state its chunks."""

    def __init__(self, fields=(-1, -1), **options):
        super().__init__(**options)
        self.fields = fields

    def prepare(self, folder):
        content = bytearray(packed(numbers(self.old), offsets=False))
        struct.pack_into("<iq", content, 12, *self.fields)
        refill(folder / TARGET, bytes(content))


class Repack(Operation):
    """Rewrite a file with other settings and other metadata."""

    def __init__(self, sync=True, **settings):
        self.synced, self.settings = sync, settings

    def prepare(self, folder):
        pack(folder / TARGET, numbers(5500), metadata=["old"])

    def run(self, folder, inputs):
        repack(
            folder / TARGET,
            nthreads=1,
            sync=self.synced,
            metadata=["new"],
            **self.settings,
        )


class SaveArrays(Operation):
    """Store several arrays in one file, over an old one or as a new file."""

    def __init__(self, replace=True, sync=None):
        # A short array is written in one piece, a longer one chunk by chunk.
        self.arrays = {"new": np.arange(17000, dtype="<i4"), "scalar": np.array(1.5)}
        self.settings = {"chunk_size": 16000, "nthreads": 1}
        self.replace, self.sync = replace, sync
        self.synced = sync is True or (replace and sync is None)

    def prepare(self, folder):
        if self.replace:
            bloscpack.savez(
                folder / TARGET,
                old=np.arange(2500, dtype="<i4"),
                kept=np.arange(100.0).reshape(10, 10),
                settings={**self.settings, "sync": False},
            )

    def run(self, folder, inputs):
        settings = {**self.settings, "sync": self.sync}
        bloscpack.savez(folder / TARGET, **self.arrays, settings=settings)

    def see(self, folder):
        path = folder / TARGET
        if not path.exists():
            return None
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None
        with bloscpack.loadz(path, nthreads=1) as archive:
            return {name: array.read().tolist() for name, array in archive.items()}

    def follow(self, folder, inputs):
        settings = {**self.settings, "sync": False}
        bloscpack.savez(folder / TARGET, follows=[1], settings=settings)


class TakenBack(Operation):
    """A change that fails in the middle, and so is taken back."""

    puts_back = True

    def prepare(self, folder):
        pack(folder / TARGET, numbers(2500))

    def provide(self, inputs):
        (inputs / "new").write_bytes(numbers(2500, 5))

    def run(self, folder, inputs):
        def fail(nbytes):
            if nbytes:
                raise FailedOnPurpose

        with contextlib.suppress(FailedOnPurpose):
            append(folder / TARGET, inputs / "new", nthreads=1, progress=fail)


class FailedOnPurpose(Exception):
    """What is raised in the middle."""


class RewriteMetadata(Operation):
    """Replace the metadata and nothing else."""

    def prepare(self, folder):
        pack(folder / TARGET, numbers(2500), metadata={"state": "old", "n": [1] * 9})

    def run(self, folder, inputs):
        rewrite_metadata(folder / TARGET, {"state": "new", "n": list(range(20))})


class MetadataOfShard(OnShard, RewriteMetadata):
    """Replace the metadata of the user in a Zarr shard."""

    in_place = True


LOOSE = BloscArgs(clevel=0)
TIGHT = BloscArgs(clevel=9, cname="zstd")
