"""Gather the evidence: choose between statements of the file that disagree."""

from __future__ import annotations

from collections import Counter

from .._format.offsets import FREE
from ..constants import BLOSCPACK_HEADER_LENGTH
from .evidence import LARGEST_OVERHEAD, Evidence, Table, is_plausible
from .geometry import nbytes_of
from .table_search import has_free_entries

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._format.array_metadata import Description
    from .._storage.base import Storage
    from .lenient_sections import Sections
    from .scan import Chain, ChunkScan

    Sizes = tuple[int | None, int | None]

# Maximum number of chunks believed without an offset table: always this many, and this
# many per chunk found. A damaged header may state 2**62 chunks, and `recover` would try
# to fill them in.
MIN_NCHUNKS_LIMIT = 2**16
NCHUNKS_LIMIT_PER_CHUNK = 1000
# The weight of a chunk that the offset table names, compared with one that it does not.
NAMED_WEIGHT = 8


def gather(
    storage: Storage,
    sections: Sections,
    scan: ChunkScan,
    array: Description | None,
    header_is_wrong: bool,
) -> Evidence:
    """Return the evidence; `header_is_wrong` says that the header has an error."""
    table = Table(sections.table.known)
    nchunks = _stated_count(sections, scan.chains)
    confirmed = _is_count_confirmed(storage, sections, scan.chains, nchunks)
    complete = _is_complete(storage, sections, scan.chains, nchunks)
    if len(table) and sections.first is not None and not complete:
        nchunks = len(table)
    nfound = sum(map(len, scan.chains))
    limit = MIN_NCHUNKS_LIMIT + NCHUNKS_LIMIT_PER_CHUNK * nfound
    if nchunks is not None and nchunks > max(limit, len(table)):
        nchunks = None
    chunk_size, last_chunk = chunk_sizes(scan, sections, table, header_is_wrong)
    fitting = sum(chain.sizes.count(chunk_size or 0) for chain in scan.chains)
    fitting += any(last_chunk in chain.sizes for chain in scan.chains)
    fitting -= last_chunk == chunk_size
    if nchunks is not None and not confirmed and nchunks < fitting:
        nchunks = None
    return Evidence(
        size=storage.size,
        base=sections.base or BLOSCPACK_HEADER_LENGTH,
        first=sections.first,
        table=table,
        nchunks=nchunks,
        chunk_size=chunk_size,
        last_chunk=last_chunk,
        count_confirmed=confirmed,
        fits_array=_is_array_size(sections, array),
        digests=scan.checksum.size > 0,
    )


# The number of chunks


def _stated_count(sections: Sections, chains: list[Chain]) -> int | None:
    """Return the number of chunks in the header, None if it may be of another file."""
    header = sections.header
    if header is None or header.nchunks == -1:
        return None
    if header.format_version >= 2 and chains and sections.first != chains[0].start:
        sizes = header.chunk_size, header.last_chunk
        known = -1 in sizes or any(chain.sizes[0] in sizes for chain in chains)
        return header.nchunks if known or sections.table_fits else None
    return header.nchunks


def _is_complete(
    storage: Storage, sections: Sections, chains: list[Chain], nchunks: int | None
) -> bool:
    """Return whether the file is exactly the chunks that the header states."""
    if len(chains) != 1 or len(chains[0]) != nchunks:
        return False
    return chains[0].start == sections.first and chains[0].stop == storage.size


def _is_count_confirmed(
    storage: Storage, sections: Sections, chains: list[Chain], nchunks: int | None
) -> bool:
    """Return whether the end of the offset table confirms the count of the header."""
    entries = sections.table.known
    if not nchunks == len(entries) > 0 or entries[-1] == FREE:
        return False
    at_first = bool(chains) and sections.first == chains[0].start
    return sections.table_fits or at_first or has_free_entries(storage, sections)


def _is_array_size(sections: Sections, array: Description | None) -> bool:
    """Return whether the header states as many plain bytes as the array has."""
    header, last = sections.header, sections.stated_last_chunk
    if array is None or header is None or last is None:
        return False
    if -1 in (header.chunk_size, header.nchunks) or header.nchunks < 1:
        return False
    return nbytes_of(header.nchunks, header.chunk_size, last) == array.nbytes


# The plain sizes of the chunks


def chunk_sizes(
    scan: ChunkScan, sections: Sections, table: Table, header_is_wrong: bool
) -> Sizes:
    """Return the plain sizes of the chunks and of the last one, None if any is right.

    All chunks but the last have the same size. If no chunk has the size in the header,
    the size that most bytes have is right; chunks that the table names weigh more.
    """
    chains, header = scan.chains, sections.header
    if header is not None and (header.format_version < 2 or header.chunk_size == -1):
        return None, None
    weights: Counter[int] = Counter()
    named = bool(chains) and chains[0].start == sections.first
    counts = [*_counted(chains, table if len(chains) > 1 or not named else Table())]
    for size, is_named, count in counts:
        weights[size] += size * count * (NAMED_WEIGHT if is_named else 1)
        named = named or is_named
    if not weights:
        if header is None:
            return None, None
        return header.chunk_size, sections.stated_last_chunk
    usual = max(weights, key=lambda size: weights[size])
    found, end = chains[-1].sizes[-1], scan.storage.size
    if header is None:
        others = [size for size, _, count in counts if size < usual and count == 1]
        return usual, others[0] if found == usual and len(others) == 1 else found
    size, last = header.chunk_size, sections.stated_last_chunk
    at_end = chains[-1].stop == end
    if size in weights and (usual in (size, last) or _is_inner(size, chains, end)):
        wrong = header_is_wrong and at_end and found <= size and last is not None
        return size, found if wrong else last
    if at_end and found == last and sum(map(len, chains)) == 1:
        return size, last  # the only chunk found may be the last one
    plausible = len(table) and is_plausible(table.entries, size + LARGEST_OVERHEAD)
    if not named and (plausible or _is_size_of_damaged(size, scan, sections.first)):
        return size, last  # the chunks found are those of an inner file
    if last is not None and all(chain.sizes[-1] != last for chain in chains):
        last = found
    return usual, last


def _counted(chains: list[Chain], table: Table) -> Iterator[tuple[int, bool, int]]:
    """Yield plain sizes, whether the table names the chunks, and their number."""
    if not len(table):
        for chain in chains:
            for size, count in Counter(chain.sizes).items():
                yield size, False, count
        return
    for chain in chains:
        for i, size in enumerate(chain.sizes):
            extent = chain.stop_of(i) - chain.offsets[i]
            at_offset = table.number_at(chain.offsets[i]) is not None
            yield size, at_offset or bool(table.numbers_of(extent)), 1


def _is_inner(size: int, chains: list[Chain], end: int) -> bool:
    """Return whether a chunk found before the end of the file has this plain size."""
    return any(
        size in chain.sizes[: len(chain) - (chain.stop == end)] for chain in chains
    )


def _is_size_of_damaged(size: int, scan: ChunkScan, first: int | None) -> bool:
    """Return whether the header of a damaged first chunk states a plain size."""
    damaged = [] if first is None else scan.damaged_chunks(first, first + 1)
    return any(chunk.nbytes == size for chunk in damaged)
