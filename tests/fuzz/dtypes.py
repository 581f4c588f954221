"""Fuzzing of dtypes: any text or list in metadata, any header of a ``.npy`` file."""

from __future__ import annotations

import io
import json
import random
import warnings
import zlib
from pathlib import Path

from fuzz import parts
from fuzz.outcomes import Allowed, Broken, check_error, outcome

from bloscpack import exceptions, npy_io
from bloscpack._format import array_metadata as arrays
from bloscpack._format import dtypes

# In the spellings of all releases, some of them wrong.
SEEDS = (
    "'<f8'",
    "<f8",
    [["", "<f8"]],
    "'|S5'",
    "'<U300'",
    "'|V0'",
    "'<M8[25s]'",
    "float64",
    "i4,f8",
    "'|O'",
    "[('a', '<i4'), ('b', '<f8')]",
    [["a", "<i4"], ["b", "|u1", [3]]],
    "[('p', [('x', '<i2'), ('y', '<i2')]), ('v', '|u1', (3,))]",
    "[(u'a', '<i4', (2L, 3L)), ('', '|V4')]",
    "[(('title', 'name'), '<c16')]",
    "[('a', '|b1'), ('', '|V7'), ('b', '<f8')]",
    [["p", [["x", "<i2"]]], ["v", "|u1", [3]]],
)
TYPES = ("<f8", "|S3", "<U2", "|V4", "|O", ">i2", "?", "<m8[ns]", "", "<f3", "T")
WORDS = ("a", "", "title", "é", "f0", 0, 1, -1, 2**31, 2**63, 1.5, None, True, {})
SHAPES = ([], [3], [0], [2, 2], 3, [10**30], [-1], ["3"], [1] * 65, None)


def run(data: bytes, folder: Path) -> object:
    """Take `data` for the dtype of an array, as text and as JSON, and for a header."""
    text = data.decode("utf-8", "replace")
    run_header(data)
    run_stored(text)
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return run_stored(text)
    return run_stored(stored)


def run_stored(stored: object) -> object:
    """Decode a dtype; what can be encoded again is the same when it comes back."""
    draw = zlib.crc32(repr(stored).encode())
    dtype = outcome(dtypes.decode_dtype, stored)
    metadata = {"container": "numpy", "dtype": stored, "order": "CF"[draw % 2]}
    shape = SHAPES[draw % len(SHAPES)]
    description = outcome(arrays.Description, {**metadata, "shape": shape})
    if isinstance(dtype, Exception):
        if not isinstance(description, Exception):
            raise Broken("no dtype, but an array of %.200r" % description.dtype)
        return dtype
    if dtypes.holds_objects(dtype):
        raise Broken("objects: %.200r" % dtype)
    if not isinstance(description, Exception) and description.nbytes < 2**20:
        array = outcome(arrays.new_array, description.shape, dtype)
        # NumPy has no texts of no bytes, and makes them longer.
        if not isinstance(array, Exception) and array.nbytes < description.nbytes:
            raise Broken("'%d' bytes, not '%d'" % (array.nbytes, description.nbytes))
    if dtype.names is not None and not (dtype.names and all(dtype.names)):
        return dtype  # a list of padding alone stands for the type, see rule A2
    try:
        again = dtypes.decode_dtype(dtypes.encode_dtype(dtype))
    except exceptions.UsageError:
        return dtype  # fields that overlap
    if outline(again) != outline(dtype):
        raise Broken("%.200r comes back as %.200r" % (dtype, again))
    return dtype


def outline(dtype) -> object:
    """Return all that matters of a dtype; for NumPy an axis within an axis does too."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, inner = dtype.subdtype
        shape += inner
    fields = [
        (name, rest, outline(field))
        for name, (field, *rest) in (dtype.fields or {}).items()
    ]
    return shape, dtype.str, fields


def run_header(text: bytes) -> None:
    """Take `text` for the header of a ``.npy`` file."""
    version = 1 + zlib.crc32(text) % 3
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    fp = io.BytesIO(b"\x93NUMPY%c\0%b%b" % (version, size, text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = npy_io.read_header(fp)
    except exceptions.FormatError as error:
        check_error(error)
    except Allowed:
        pass  # objects, or a dtype that can't be stored
    else:
        if dtypes.holds_objects(array.dtype):
            raise Broken("objects: %.200r" % array.dtype)


# What the bytes are


def made(rng: random.Random, folder: Path) -> bytes:
    """Return a spelling that was changed, one of chance, or a changed header."""
    kind = rng.randrange(4)
    stored = rng.choice(SEEDS) if kind else random_value(rng, 4)
    if kind == 1:
        fields = {"descr": stored, "fortran_order": False, "shape": (2, 3)}
        text = repr(fields)
    elif kind == 2 and isinstance(stored, str):
        text = stored
    else:
        text = json.dumps(repr(stored) if rng.randrange(2) else stored)
    data = text.encode()
    for _ in range(rng.randrange(4)):
        data = parts.changed_text(data, rng.randrange)
    return data


def random_value(rng: random.Random, depth: int) -> object:
    """Return lists of lists of types, names and numbers."""
    if not depth or not rng.randrange(3):
        return rng.choice(rng.choice((TYPES, WORDS, SHAPES)))
    return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
