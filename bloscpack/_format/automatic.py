"""The choice of settings for ``--auto``, from the sizes of a small compressed sample.

The same data always get the same settings: sizes are measured, but speeds are taken
from a table, because measured speeds vary. The settings do not depend on the number of
threads either. First the filters and type sizes are compared with one codec, on short
pieces; then the codecs of the goal, with the best filters, on longer pieces; at last,
for zstd without a filter, long blocks with those that Blosc chooses. The size of the
sample is bounded so that the choice takes a few hundredths of a second, and at most
5 % of the time to compress large data.

A goal is the speed of a disk: the cost of a setting is the time to compress, to write,
to read and to decompress. The goal 'ratio' assumes a slow disk, so a level must pay for
its time: a slower level that saves little is not chosen. Its choice is compared with
that for 'balanced', so that it is never worse on the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._engine.blosc_settings import own_settings
from .._types import Buffer
from ..constants import MAX_TYPESIZE
from ..defaults import DEFAULT_CLEVEL, DEFAULT_CNAME, DEFAULT_TYPESIZE
from ..exceptions import UsageTypeError, UsageValueError
from .block_table import LEAST_CHUNK
from .chunks import compress
from .codecs import BITSHUFFLE, CODECS, DEFAULT_GOAL, GOALS, NONE, SHUFFLE, codec_named
from .dtypes import Array

Read = Callable[[int, int], bytes]

Sizes = tuple[int, int, int]

Fixed = dict[str, str | int]

Filter = tuple[int, int]

# The goal whose choice is compared with that for the default goal.
SMALLEST = "ratio"
# The levels for a codec that the user gives, if the goal has none for it.
USUAL_LEVEL = {"speed": 1, "balanced": 5, "ratio": 9}
# The kinds of codecs that may compare the filters, and their level.
PROBES = {"speed": ("fast",), "balanced": ("fast",), "ratio": ("slow", "fast")}
PROBE_LEVEL = {"speed": 5, "balanced": 5, "ratio": 3}
# Time that bit shuffle takes for a byte.
BITSHUFFLE_NANOSECONDS = 0.2
# Time that every setting takes: to read, to copy, and to compute digests.
BASE_NANOSECONDS = 1.0
# The costs are those for this number of threads. More threads get the same settings.
THREADS = 4
# A cost counts as equal if it is at most this much higher, as a factor and in seconds.
EQUAL_FACTOR = 1.03
EQUAL_SECONDS = 0.15e-9
# A filter is tried with all codecs if its ratio is above the ratio without a filter,
# and above this share of the best ratio. Without a filter, other codecs may be much
# better than the first one, so that a smaller ratio is enough.
NEAR = 0.9
NEAR_WITHOUT_FILTER = 0.5
FILTERS_KEPT = 2
# From these ratios on, data are regular: the sample is a whole chunk, and this many
# filters are tried. Such data compress fast, and other filters and codecs are good for
# shorter pieces.
REGULAR = {"speed": 4, "balanced": 4, "ratio": 8}
FILTERS_OF_REGULAR = 3
# Sizes of a piece and of a sample in bytes, and the part of the data that a sample is
# at most: to compare filters; to compare codecs on data without a filter, filtered
# data, and very regular data; and to compare slow settings. Many short pieces show more
# of data that differ from part to part. Filtered data need long pieces: a filter cuts
# them into a stream for each byte, or each bit, of an item. So do slow settings, which
# find distant repetitions.
SHORT = 2**15, 2**17, 128
LONG = 2**16, 2**19, 128
LONG_FILTERED = 2**18, 2**19, 128
WHOLE = 2**20, 2**20, 8
SLOW = 2**19, 2**19, 16
# Minimum size of a sample; the second one for small arrays that are saved fast.
LEAST = 2**17
LEAST_OF_SMALL = 2**15
# Size in bytes from which data of a known type size are worth a choice, unless the goal
# is the smallest file: below, it takes longer than everything else, and what it saves
# is less than what an array file has beside its chunks.
WORTH_A_CHOICE = 2**11
# Size of the blocks of the highest level that the goal 'ratio' tries. Blosc does not
# bit-shuffle a block whose number of items is not a multiple of 8: this filter is left
# out if more than this fraction of the data would be such a block.
LONGEST_BLOCK = 2**19
UNFILTERED = 1 / 8
# Without a filter, zstd finds more in most data if blocks are longer than those that
# Blosc chooses. This is the distance in bytes at which its level 3 finds repetitions.
# But in blocks of more than 256 KiB it looks for longer repetitions, and finds fewer
# in columns of numbers. A piece as one block shows which is better. From level 6 on,
# Blosc itself chooses long blocks, so a piece would show no difference.
PIECE_FOR_BLOCKS = 2**19
LAST_LEVEL_OF_SHORT_BLOCKS = 5
BLOCK_SIZES = {"speed": 2**20, "balanced": 2**21, "ratio": 2**23}
# The type sizes that are tried for data without one, and the usual chunk size.
TYPESIZES = (1, 2, 3, 4, 6, 8, 12, 16)
CHUNK_SIZE = 2**20
# Codecs of which Blosc makes blocks of up to 1 MiB, one stream for each byte of an item
# of at most 16 bytes. It multiplies the block size that it is told by the item size.
CODECS_OF_LONG_BLOCKS = "lz4", "blosclz"
MAX_STREAMS = 16
# The blocks of these codecs in chunks of which single items are read, and the growth of
# a chunk from which Blosc chooses the block size: regular data need long blocks.
# Shorter chunks have no digests of blocks, so that a read takes all of them.
READ_NBYTES = 2**16
MOST_GROWTH = 1.03


@dataclass(frozen=True)
class Setting:
    """Codec, level, filter, type size, chunk size and block size.

    A block size of 0 means that Blosc chooses it.
    """

    cname: str
    clevel: int
    shuffle: int
    typesize: int
    chunk_size: int
    blocksize: int = 0

    def but(self, **changes: Any) -> Setting:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


DEFAULT = Setting(DEFAULT_CNAME, DEFAULT_CLEVEL, SHUFFLE, DEFAULT_TYPESIZE, CHUNK_SIZE)


def choose(
    read: Read,
    nbytes: int,
    goal: str,
    typesizes: Sequence[int] = (),
    fixed: Fixed | None = None,
    *,
    for_parts: bool = False,
) -> Setting:
    """Return the best setting for `nbytes` bytes of data.

    ``read(start, size)`` returns a part of the data. `typesizes` are those to try, by
    default all. `fixed` has the fields of the setting that the user has chosen. With
    `for_parts`, parts of the data will be read: no block is longer than those of Blosc;
    and less of small data is tried. Raises `UsageValueError` if no goal has the name.
    """
    if goal not in GOALS:
        raise UsageValueError(
            "the goal must be one of %s, not '%s'; 'auto' is a goal, True or False"
            % (", ".join(GOALS), goal)
        )
    fixed = fixed or {}
    if "typesize" in fixed:
        typesizes = (int(fixed["typesize"]),)
    # A choice among all filters is for bytes of an unknown kind.
    is_small = nbytes < WORTH_A_CHOICE and len(typesizes) == 1 and goal != SMALLEST
    if not nbytes or is_small:
        known = {"typesize": typesizes[0]} if typesizes else {}
        return DEFAULT.but(**{**known, **fixed})
    filters = filters_to_try(typesizes or TYPESIZES, fixed.get("shuffle"))
    if goal != SMALLEST:
        return _cheapest(read, nbytes, goal, filters, fixed, for_parts=for_parts)
    usual = _cheapest(read, nbytes, DEFAULT_GOAL, filters, fixed)
    filters = [pair for pair in filters if _is_applied(pair, nbytes)] or filters
    best = _cheapest(read, nbytes, goal, filters, fixed, for_parts=for_parts)
    pieces = _pieces(read, nbytes, SLOW)
    return best if _size(pieces, best) < _size(pieces, usual) else usual


def _cheapest(
    read: Read,
    nbytes: int,
    goal: str,
    filters: Sequence[Filter],
    fixed: Fixed,
    *,
    for_parts: bool = False,
) -> Setting:
    """Return the setting of the lowest cost for a goal."""
    sizes = LONG if filters[0][0] == NONE else LONG_FILTERED
    least = max(LEAST_OF_SMALL, min(LEAST, nbytes // 8)) if for_parts else LEAST
    if len(filters) > 1:
        pieces = _pieces(read, nbytes, SHORT, least)
        filters, sizes = _best_filters(pieces, filters, goal)
    settings = _candidates(goal, fixed, filters, regular=sizes is WHOLE)
    best = settings[0]
    if len(settings) > 1:
        pieces = _pieces(read, nbytes, SLOW if goal == SMALLEST else sizes, least)
        best = _best(pieces, settings, GOALS[goal])
    most = -1 if for_parts else codec_named(best.cname).long_blocks
    if best.shuffle != NONE or best.clevel > most:
        return best
    chunk_size = int(fixed.get("chunk_size", BLOCK_SIZES[goal]))
    block = min(chunk_size, max(BLOCK_SIZES.values()))
    other = best.but(chunk_size=chunk_size, blocksize=block)
    if best.clevel > LAST_LEVEL_OF_SHORT_BLOCKS:
        return other
    size = min(PIECE_FOR_BLOCKS, chunk_size)
    pieces = _pieces(read, nbytes, (size, 2 * size, LONG[-1]), size)
    return other if _size(pieces, other) < _size(pieces, best) else best


def blocksize_for_parts(
    setting: Setting, nbytes: int, data: tuple[Read, int] | None = None
) -> int:
    """Return the block size for chunks of `nbytes` bytes of which parts are read.

    `data` is a function that reads a sample of them, and its size, if there is one. The
    result is 0 if Blosc chooses the size.
    """
    wide = 1 < setting.typesize <= MAX_STREAMS
    blocksize = READ_NBYTES // (setting.typesize if wide else 1)
    if setting.cname not in CODECS_OF_LONG_BLOCKS or nbytes < LEAST_CHUNK:
        return 0
    if data is not None:
        read, size = data
        most = min(nbytes, CHUNK_SIZE)
        pieces = _pieces(read, size, (most, most, 1))
        automatic = setting.but(blocksize=0)
        now = _size(pieces, setting.but(blocksize=blocksize))
        return blocksize if now <= MOST_GROWTH * _size(pieces, automatic) else 0
    return blocksize


def _is_applied(pair: Filter, nbytes: int) -> bool:
    """Return whether Blosc applies a filter to most of the long blocks."""
    shuffle, typesize = pair
    last = nbytes % LONGEST_BLOCK
    unfiltered = last if last // typesize % 8 else 0
    return shuffle != BITSHUFFLE or unfiltered <= UNFILTERED * nbytes


def _candidates(
    goal: str, fixed: Fixed, filters: Sequence[Filter], *, regular: bool
) -> list[Setting]:
    """Return the settings to try: codecs and levels with each of the filters."""
    from ..constants import CNAME_AVAIL

    wanted = fixed.get("cname")
    candidates = [
        (codec.name, level)
        for codec in CODECS.values()
        if codec.name == wanted or (wanted is None and codec.name in CNAME_AVAIL)
        for levels in (codec.levels, codec.levels_for_regular if regular else {})
        for level in levels.get(goal, ())
    ]
    if not candidates:
        candidates = [(str(wanted or DEFAULT_CNAME), USUAL_LEVEL[goal])]
    chunk_size = int(fixed.get("chunk_size", CHUNK_SIZE))
    settings = [
        Setting(cname, int(fixed.get("clevel", level)), *pair, chunk_size)
        for pair in filters
        for cname, level in candidates
    ]
    return list(dict.fromkeys(settings))


def filters_to_try(
    typesizes: Sequence[int], wanted: str | int | None = None
) -> list[Filter]:
    """Return the pairs of filter and type size to try, of one filter if it is `wanted`.

    Otherwise the first is without a filter, and the bit filter is tried with powers of
    two only: it copies a block unchanged unless its number of items is a multiple of 8.
    """
    filters = [(NONE, typesizes[0] if len(typesizes) == 1 else 1)]
    for size in typesizes:
        if size > 1:  # shuffle does nothing for single bytes
            filters.append((SHUFFLE, size))
        if wanted is not None or size & (size - 1) == 0:
            filters.append((BITSHUFFLE, size))
    if wanted is None:
        return filters
    shuffle = int(wanted)
    return [pair for pair in filters if pair[0] == shuffle] or [(shuffle, typesizes[0])]


def _pieces(read: Read, nbytes: int, sizes: Sizes, least: int = LEAST) -> list[bytes]:
    """Return the sample: all data, or pieces whose sizes are a power of two."""
    size, most, share = sizes
    total = max(min(most, nbytes // share), least)
    if nbytes <= total:
        return [read(0, nbytes) or b"\0"]
    size = min(size, 1 << (total.bit_length() - 1))
    pieces = [read(start, size) for start in piece_starts(nbytes, size, total)]
    return [piece for piece in pieces if piece] or [b"\0"]


def piece_starts(nbytes: int, size: int, total: int) -> list[int]:
    """Return the offsets of pieces of `size` bytes, `total` bytes together.

    They are the pieces in the middle of equal parts of `nbytes` bytes.
    """
    full = nbytes // size
    count = max(1, min(full, total // size))
    return [(2 * i + 1) * full // (2 * count) * size for i in range(count)]


def _ratio(pieces: list[bytes], setting: Setting) -> float:
    """Return the compression ratio; Blosc's header of 16 bytes a piece counts too."""
    return sum(map(len, pieces)) / _size(pieces, setting)


def _size(pieces: Iterable[bytes], setting: Setting) -> int:
    """Return the compressed size with the block size of the setting."""
    with own_settings:
        return sum(len(compress(piece, setting)) for piece in pieces)


def growth_by_default(read: Read, nbytes: int) -> float:
    """Return how many times as large the default leaves data as the best setting.

    Both are measured on a sample.
    """
    pieces, best = _pieces(read, nbytes, SLOW), choose(read, nbytes, DEFAULT_GOAL)
    return _size(pieces, DEFAULT) / _size(pieces, best)


def _best_filters(
    pieces: list[bytes], filters: Iterable[Filter], goal: str
) -> tuple[list[Filter], Sizes]:
    """Return the filters to try with all codecs, and the sizes of the sample for it.

    They are compared with the first codec that probes.
    """
    from ..constants import CNAME_AVAIL

    kinds = PROBES[goal]
    names = [c.name for kind in kinds for c in CODECS.values() if c.probe == kind]
    probe = next(name for name in names if name in CNAME_AVAIL)
    ratios = {
        pair: _ratio(pieces, Setting(probe, PROBE_LEVEL[goal], *pair, CHUNK_SIZE))
        for pair in filters
    }
    best = max(ratios.values())
    ordered = sorted(ratios, key=ratios.__getitem__, reverse=True)
    if best >= REGULAR[goal]:
        return ordered[:FILTERS_OF_REGULAR], WHOLE
    plain = [pair for pair in ordered if pair[0] == NONE]
    unfiltered = max((ratios[pair] for pair in plain), default=0.0)
    near = [p for p in ordered if ratios[p] > max(unfiltered, NEAR * best)]
    kept = near[:FILTERS_KEPT]
    if unfiltered >= NEAR_WITHOUT_FILTER * best:
        kept += plain
    return kept, LONG_FILTERED if near else LONG


def _best(pieces: list[bytes], settings: Iterable[Setting], disk: float) -> Setting:
    """Return the setting of the lowest cost; the ratio decides among equal costs."""
    ratios = {setting: _ratio(pieces, setting) for setting in settings}
    # The seconds per plain byte to compress, write, read and decompress it.
    costs = {s: _seconds(s, ratio) + 2 / (ratio * disk) for s, ratio in ratios.items()}
    limit = EQUAL_FACTOR * min(costs.values()) + EQUAL_SECONDS
    near = [setting for setting in ratios if costs[setting] <= limit]
    return max(near, key=lambda setting: ratios[setting])


def _seconds(setting: Setting, ratio: float) -> float:
    """Return the time to compress and decompress a byte, from the table."""
    text = codec_named(setting.cname).nanoseconds[max(setting.clevel, 1) - 1]
    # Codecs skip filtered data that repeat, or that do not compress.
    if setting.shuffle == NONE:
        work = text * (0.1 + 0.9 * min(1.0, 4 / ratio))
    else:
        work = text * (0.08 + 0.7 / ratio)
    if setting.shuffle == BITSHUFFLE:
        work += BITSHUFFLE_NANOSECONDS
    return 1e-9 * (BASE_NANOSECONDS + work / THREADS)


# A sample that a caller of the library gives


def choose_for(sample: Buffer | Array, goal: str) -> Setting:
    """Return the best setting for data of which `sample` is a part, or all.

    A sample is read in pieces, so that the items of a large array need not be
    contiguous. The item size of an array is the type size. Raises `UsageTypeError`
    for a masked array, and unless the sample is an array or a buffer of bytes.
    """
    import numpy

    if isinstance(sample, numpy.ma.MaskedArray):
        raise UsageTypeError(
            "a sample can't be a masked array, which can't be stored; pass .data or "
            ".filled()"
        )
    kind = type(sample).__name__
    try:
        view = sample if hasattr(sample, "dtype") else memoryview(sample)
        array = numpy.asarray(view)
        kind = str(array.dtype)
        is_plain = not array.dtype.hasobject
    except (TypeError, ValueError, NotImplementedError):
        is_plain = False
    if not is_plain:
        raise UsageTypeError(
            "a sample must be bytes or an array of numbers or text, not '%s'" % kind
        )
    if array.flags.f_contiguous:
        array = array.T
    itemsize = array.itemsize
    typesizes = (itemsize,) if 1 < itemsize <= MAX_TYPESIZE else ()
    items = array.reshape(-1) if array.flags.c_contiguous else array.flat
    return choose(reader_of(items, itemsize), array.nbytes, goal, typesizes)


def reader_of(
    rows: Any, row_nbytes: int, convert: Callable[[Any], Array] | None = None
) -> Read:
    """Return a function that reads plain bytes of rows, or of items.

    The part that is read goes through `convert`, after which a row has `row_nbytes`.
    """

    def read(start: int, size: int) -> bytes:
        first, skip = divmod(start, row_nbytes)
        part = rows[first : -(-(start + size) // row_nbytes)]
        data: bytes = (part if convert is None else convert(part)).tobytes()
        return data[skip : skip + size]

    return read
