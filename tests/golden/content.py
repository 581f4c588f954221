"""Deterministic plain data, named by short specs: the input of the golden files.

A spec gives the same bytes everywhere and for ever; README.rst lists the kinds.
"""

from __future__ import annotations

import hashlib

import numpy

WORDS = (
    "blosc chunk pack header offset zero one two three shuffle level size codec meta "
    "data array shape order fortran little big endian end"
).encode("ascii")
PIECE = 1000


def make(spec: str) -> bytes:
    """Return the bytes that a spec stands for.

    >>> make("cat:ramp:2:3:300|lit:ff")
    b'\\x00\\x00,\\x01X\\x02\\xff'
    """
    kind, _, rest = spec.partition(":")
    return KINDS[kind](rest)


def _zeros(rest: str) -> bytes:
    return bytes(int(rest))


def _rand(rest: str) -> bytes:
    size, seed = rest.split(":")
    return _noise(int(size), seed)


def _noise(size: int, seed: str) -> bytes:
    """Return what no codec can shrink: digests of seed and block number."""
    nblocks = -(-size // hashlib.sha256().digest_size)
    start = hashlib.sha256(seed.encode("ascii") + b"/")
    blocks = []
    for number in range(nblocks):
        block = start.copy()
        block.update(b"%d" % number)
        blocks.append(block.digest())
    return b"".join(blocks)[:size]


def _ramp(rest: str) -> bytes:
    return _steps(*map(int, rest.split(":")))


def _steps(width: int, length: int, step: int) -> bytes:
    """Return `length` multiples of `step`, little-endian, cut to `width` bytes."""
    if width > 8 and length * step >= 2**64:
        raise ValueError("numbers of more than 64 bits are not supported")
    multiples = numpy.arange(length, dtype="<u8") * numpy.uint64(step)
    columns = numpy.zeros((length, max(width, 8)), "u1")
    columns[:, :8] = multiples.view("u1").reshape(length, 8)
    return columns[:, :width].tobytes()


def _dbl(rest: str) -> bytes:
    length, period = map(int, rest.split(":"))
    squares = numpy.arange(length, dtype="<i8") ** 2
    return (squares % period / period).astype("<f8").tobytes()


def _lin(rest: str) -> bytes:
    return (numpy.arange(int(rest)) / 1024).astype("<f8").tobytes()


def _text(rest: str) -> bytes:
    """Return words picked by a linear congruential generator."""
    size, seed = rest.split(":")
    words = [(word + b"\n", word + b" ") for word in WORDS.split()]
    digest = hashlib.sha256(b"text/" + seed.encode("ascii")).digest()
    state = int.from_bytes(digest[:4], "big")
    text = bytearray()
    while len(text) < int(size):
        state = (state * 1103515245 + 12345) % 2**31
        text += words[(state >> 8) % len(words)][(state >> 16) % 2]
    return bytes(text[: int(size)])


def _mix(rest: str) -> bytes:
    """Return pieces that shrink well and pieces that don't shrink, by turns."""
    size, seed = rest.split(":")
    mixed = bytearray()
    for piece in range(-(-int(size) // PIECE)):
        if piece % 2:
            mixed += _noise(PIECE, "%s.%d" % (seed, piece))
        else:
            mixed += _steps(4, PIECE // 4, 3 + piece)
    return bytes(mixed[: int(size)])


def _cat(rest: str) -> bytes:
    return b"".join(map(make, rest.split("|")))


KINDS = {
    "zeros": _zeros,
    "rand": _rand,
    "ramp": _ramp,
    "dbl": _dbl,
    "lin": _lin,
    "text": _text,
    "mix": _mix,
    "lit": bytes.fromhex,
    "cat": _cat,
}
