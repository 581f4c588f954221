"""Fuzzing of archives: any bytes, given to `loadz`, `verify`, `recover` and `convert`.

An archive without errors can be read. ZIP files of NumPy are converted or refused.
"""

from __future__ import annotations

import functools
import io
import random
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
from fuzz import files
from fuzz.outcomes import Allowed, Broken, check_error, outcome

from bloscpack import dataset, exceptions, recover, verify, zip_io
from bloscpack._file.archive import encode_directory
from bloscpack._storage.base import MemoryStorage
from bloscpack._storage.zip_store import Directory

FormatError = exceptions.FormatError
NUMBERS = (0, 1, 2, 7, 255, 2**16 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**40, 2**62)


def run(data: bytes, folder: Path) -> object:
    """Do everything with `data`; return the arrays, or the error of their reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns about equal names
        found = read(data)
        report: object
        try:
            report = outcome(lambda: verify.verify_fp(io.BytesIO(data), nthreads=1))
        except exceptions.UsageError as error:  # a member is compressed by ZIP itself
            report = error
        sound = not isinstance(report, Exception) and report.format_version is None
        if sound and report.ok and isinstance(found, Exception):
            raise Broken("nothing found, but %s" % found)
        try:
            recover.recover_fp(io.BytesIO(data), io.BytesIO(), nthreads=1)
        except FormatError as error:
            check_error(error)
        except exceptions.UsageError:
            pass
        if zlib.crc32(data) % 4 == 0:
            run_convert(data, folder)
    return found


def read(data: bytes) -> object:
    """Return the arrays; names and values of a ``dict``, or the error."""
    try:
        with zip_io.loadz(data, nthreads=1) as archive:
            return {name: array.read().tobytes() for name, array in archive.items()}
    except Allowed as error:
        return error


def run_convert(data: bytes, folder: Path) -> None:
    path, out = folder / "a.npz", folder / "out.npz"
    path.write_bytes(data)
    if b"zarr.json" not in data:  # a store is left to zarr, which is not fuzzed here
        try:
            dataset.convert(path, out, force=True, sync=False)
        except FormatError as error:
            check_error(error)
        except (exceptions.UsageError, OSError):
            pass
    for left in (path, out):
        left.unlink(missing_ok=True)
    if list(folder.iterdir()):
        raise Broken("left behind: %r" % list(folder.iterdir()))


# The bytes


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Return archives of this package, of another program, and of NumPy."""
    arrays = {"a": np.arange(9), "b": np.ones((2, 3)), "g/x": np.zeros(3, "u1")}
    fps = [io.BytesIO() for _ in range(5)]
    zip_io.savez(fps[0], **arrays, s=1.5)
    zip_io.savez(fps[1], t=np.array(2), settings={"cname": "zstd"})
    with (
        zipfile.ZipFile(fps[0]) as source,
        zipfile.ZipFile(fps[2], "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            kind = zipfile.ZIP_DEFLATED if name == "a/c/0" else zipfile.ZIP_STORED
            target.writestr(name, source.read(name), kind)
    np.savez(fps[3], **{name.replace("/", "_"): arrays[name] for name in arrays})
    np.savez_compressed(fps[4], f=np.asfortranarray(np.ones((20, 30))))
    return tuple(fp.getvalue() for fp in fps)


def made(rng: random.Random, folder: Path) -> bytes:
    """Return an archive that was changed, cut off, or has another directory."""
    data = rng.choice(seeds())
    kind = rng.randrange(5)
    if kind == 0:
        return spliced(data, rng)
    if kind == 1:
        return data[: rng.randrange(len(data))]
    if kind == 2:
        return files.change_some_bytes(data, rng)
    other = bytearray(data)
    start = 0 if kind == 3 else max(0, data.find(b"PK\x01\x02"))
    for _ in range(1 + rng.randrange(3)):
        at = rng.randrange(start, len(other))
        if rng.randrange(2):
            other[at] ^= 1 << rng.randrange(8)
        else:
            size = rng.choice((2, 4, 8))
            number = rng.choice(NUMBERS) % 2 ** (8 * size)
            other[at : at + size] = number.to_bytes(size, "little")
    return bytes(other)


def spliced(data: bytes, rng: random.Random) -> bytes:
    """Return an archive with another directory, which has the numbers of members."""
    directory = Directory(MemoryStorage(data))
    members = directory.entries
    for _ in range(1 + rng.randrange(3)):
        member = rng.choice(members)
        kind = rng.randrange(6)
        if kind == 0:
            members.remove(member) if len(members) > 1 else None
        elif kind == 1:
            members.append(member)
        elif kind == 2:
            rng.shuffle(members)
        elif kind == 3:
            other = rng.choice(members)
            member.filename, other.filename = other.filename, member.filename
        elif kind == 4:
            member.filename = rng.choice(
                ("", "/", "../a", "a/c/0", "zarr.json", "\xff")
            )
        else:
            field = rng.choice(("CRC", "file_size", "compress_size", "header_offset"))
            value = rng.choice((*NUMBERS, getattr(rng.choice(members), field)))
            setattr(member, field, value % 2**32 if field == "CRC" else value)
    return data[: directory.start] + encode_directory(members, directory.start)
