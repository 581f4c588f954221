"""A damaged file: what its sections say, its chunks, and which they are.

The sections are read by `Sections`, the chunks found by `Survey`, sifted and placed;
here these are put together. A section may be found by the chunks, a checksum by the
digests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import pairwise

from .._format.offsets import FREE
from ..checksums import CHECKSUMS
from ..constants import BLOSCPACK_HEADER_LENGTH, MAGIC
from ..exceptions import FormatError
from ..serializers import is_array
from .evidence import Evidence
from .findings import ERROR
from .lenient_sections import Sections
from .nested import sift
from .numbering import place
from .scan import Survey, find_checksum

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    from .._format.array_metadata import Description
    from .._storage.base import Storage
    from ..abstract_io import Progress
    from ..checksums import Hash
    from ..headers import BloscpackHeader
    from .scan import Chain, DamagedChunk

# A number of chunks is believed, without a table, up to so many, or so many for each
# that is found: 2**62 chunks would keep `recover` busy.
BELIEVED_ALWAYS = 2**16
BELIEVED_PER_CHUNK = 1000
# So many chunks without anything in between have no digests.
TOUCHING = 4
# So many chains are tried as what a table names.
CHAINS_TRIED = 16
# So many places without the chunk that should be there are looked at.
BROKEN_KEPT = 1000


def _outside(chains: list[Chain], others: list[Chain]) -> int:
    """Return the bytes of all chains that do not lie inside of one of the others."""
    starts = [other.start for other in others]
    total = 0
    for chain in chains:
        i = bisect_right(starts, chain.start) - 1
        if i < 0 or others[i].stop < chain.stop:
            total += chain.stop - chain.start
    return total


class Inspection(Sections):
    """A file taken apart; enter `chunks.own_settings` first.

    ``announced`` is where header and metadata say that the first chunk should be,
    ``survey`` has the chunks, ``places`` their numbers, and ``damaged`` tells where one
    should be and is not.

    Raises `NotReadable` for what is no Bloscpack file.
    """

    def __init__(
        self, storage: Storage, nthreads: int, progress: Progress | None = None
    ) -> None:
        super().__init__(storage)
        self._progress = progress
        self._nthreads = nthreads
        self.announced = self.first
        self.survey = self._search()
        self.checksum = self.survey.checksum
        if self.header is not None:
            self._report_checksum(self.header)
        if self.unreadable is not None and not self.survey.chains:
            raise self.unreadable
        self._mend()
        self.description = self._describe()
        self.evidence = self._gather_evidence()
        self.evidence.counted = self._is_counted()
        self._sift()
        self.evidence.ends_mid_chunk = self._is_torn()
        self.places = place(self.survey.chains, self.evidence)
        if self.evidence.nchunks is None and self._lacks_plain_bytes():
            self.places.certain = False
        self.damaged = self._broken()

    def _search(self) -> Survey:
        """Find all chunks, with or without digests, whatever the header says."""
        header = self.header
        stated = None if header is None else self._survey(header.checksum_impl)
        if stated is not None and self._is_confirmed(stated):
            return stated
        found = find_checksum(self.storage, self.base if header is None else 0)
        with_digests = None if found is None else self._survey(found)
        without = stated
        if without is None or without.checksum.size:
            without = self._survey(CHECKSUMS[0])
        chosen = self._choose(with_digests, without)
        if stated is None:
            if chosen is without and not self.unchecked and not self._proven(without):
                # There may be no checksum, or no chunk that is intact.
                chosen.chains = []
            return chosen
        if chosen is without and not self._refutes(without):
            return stated
        return chosen

    def _is_confirmed(self, survey: Survey) -> bool:
        """Return whether the chunks confirm the checksum that the header says."""
        if survey.checksum.size:
            return bool(survey.chains)
        if self._has_all_without(survey):
            return True
        proven = sum(chain.stop - chain.start for chain in self._proven(survey))
        return 2 * proven > sum(chain.stop - chain.start for chain in survey.chains)

    def _refutes(self, survey: Survey) -> bool:
        """Return whether chunks show that the digests announced are not there.

        They do if several touch, or if they are all that the header says and nothing
        else: some missing bytes can make two chunks touch, but hardly more.
        """
        if any(len(chain) >= TOUCHING for chain in survey.chains):
            return True
        if len(survey.chains) != 1 or self.header is None:
            return False
        (chain,) = survey.chains
        expected = self.header.nchunks
        return (
            chain.start == self.first
            and expected in (-1, len(chain))
            and chain.stop == self.storage.size
        )

    def _proven(self, survey: Survey) -> list[Chain]:
        """Return the chains that show that there are no digests.

        Their chunks touch each other, the next chain or, if none is missing, the end
        of the file: elsewhere that may have been cut off in front of a digest.
        """
        chains = survey.chains
        stops = {chain.start for chain in chains}
        if self.header is None or self.header.nchunks in (-1, sum(map(len, chains))):
            stops.add(self.storage.size)
        return [chain for chain in chains if len(chain) > 1 or chain.stop in stops]

    def _has_all_without(self, survey: Survey) -> bool:
        """Return whether all chunks are there, no digest behind the first one."""
        assert self.header is not None
        count, end = 0, self.first
        for chain in survey.chains:
            if chain.start == end:
                count, end = count + len(chain), chain.stop
        if end is None or self.first is None or not 0 < self.header.nchunks <= count:
            return False
        if count > 1 or end == self.storage.size:
            return True
        header = survey.examiner.header_at(self.first)
        return survey.examiner.checksum_of(self.first, header) is None

    def _choose(self, with_digests: Survey | None, without: Survey) -> Survey:
        """Return the survey whose chunks are those of the file.

        A packed file may be inside of another, so what lies in chunks of the other
        survey does not count.
        """
        if with_digests is None:
            return without
        digested, bare = with_digests.chains, self._proven(without)
        if _outside(bare, digested) > _outside(digested, bare):
            return without
        return with_digests

    def _report_checksum(self, header: BloscpackHeader) -> None:
        found, stated = self.checksum, header.checksum_impl
        offset = 6 if header.format_version >= 2 else 4
        if found is not stated:
            why = (
                "which the digests are of" if found.size else "as there are no digests"
            )
            self.findings.add(
                "header",
                "checksum",
                "expected the checksum '%s', %s, found '%s'"
                % (found.name, why, stated.name),
                offset=offset,
            )
        if not found.size:
            self.findings.note(
                "header",
                "no-checksum",
                "there are no digests: only what Blosc can't decompress is noticed",
                offset=offset if header.format_version >= 2 else 0,
            )

    def _survey(self, checksum: Hash) -> Survey:
        header, limit, first = self.header, None, self.first
        if header is not None and header.nchunks != -1:
            limit = header.nchunks
        if self.table and self.table[0] not in (first, FREE):
            first = None
        survey = Survey(self.storage, checksum, self._nthreads, self._progress)

        def is_whole(chain: Chain) -> bool:
            return self._is_whole(chain, survey)

        survey.run(first, 0, limit, is_whole)
        return survey

    def _is_whole(self, chain: Chain, survey: Survey) -> bool:
        """Return whether as many chunks as the header says are all that there are.

        Bytes behind them are no part of the file then: releases up to 0.16.0 left some
        there when they made the last chunk shorter.
        """
        header, last = self.header, self.header and self.header.last_chunk
        if chain.stop == self.storage.size:
            return True
        if self.table:
            if chain.offsets != self.table or last not in (-1, chain.sizes[-1]):
                return False
            # If another chunk follows, one may lie in the place of another.
            return survey.find(chain.stop, chain.stop + 1) is None
        # Only files with a table can have been appended to.
        behind = self.storage.read_at(chain.stop, len(MAGIC))
        return header is not None and behind == MAGIC

    def _mend(self) -> None:
        """Look for sections that are not where they should be."""
        chains = self.survey.chains
        starts = [chain.start for chain in chains[:CHAINS_TRIED]]
        if not chains or self.first in starts:
            return
        if not self.is_right_for(starts):
            any(self.find_table(start) for start in starts)
        header = self.header
        if self.metadata_header is None and not (header and header.metadata):
            self.find_metadata(BLOSCPACK_HEADER_LENGTH)

    def _sift(self) -> None:
        """Leave the chunks that are no part of others, and note what is damaged."""
        survey, evidence = self.survey, self.evidence
        survey.chains = sift(
            survey.chains, evidence, self.checksum.size, survey.trail, survey.fills
        )

    def _broken(self) -> list[DamagedChunk]:
        """Return where a chunk should be and none is, with what is wrong there."""
        survey = self.survey
        damaged: list[DamagedChunk] = []
        end = self.first
        for chain in [*survey.chains, None]:
            stop = self.storage.size if chain is None else chain.start
            if end is not None and end < stop:
                for place in survey.trail(end, stop):
                    if len(damaged) == BROKEN_KEPT:
                        return damaged
                    survey.explain(place)
                    damaged.append(place)
            end = chain.stop if chain is not None else None
        return damaged

    def _agrees(self, header: BloscpackHeader) -> bool:
        """Return whether the chunks do not say that the header is another one's."""
        chains = self.survey.chains
        if header.format_version < 2 or not chains or self.first == chains[0].start:
            return True
        if self.has_table:
            return True
        sizes = header.chunk_size, header.last_chunk
        return -1 in sizes or any(chain.sizes[0] in sizes for chain in chains)

    def _gather_evidence(self) -> Evidence:
        header, survey = self.header, self.survey
        nchunks = None
        if header is not None and header.nchunks != -1 and self._agrees(header):
            nchunks = header.nchunks
        count_confirmed = nchunks is not None and nchunks == len(self.table)
        count_confirmed = (
            count_confirmed and bool(self.table) and self.table[-1] != FREE
        )
        # Where the table ends tells how many entries it has.
        starts = [chain.start for chain in survey.chains[:1]]
        count_confirmed = count_confirmed and (
            self.has_table or self.first in starts or self.has_free_entries
        )
        if self.table and self.first is not None:
            nchunks = len(self.table)
        found = sum(map(len, survey.chains))
        believed = BELIEVED_ALWAYS + BELIEVED_PER_CHUNK * found
        disbelieved = nchunks is not None and nchunks > max(believed, len(self.table))
        base = self.base or BLOSCPACK_HEADER_LENGTH
        evidence = Evidence(
            self.table,
            self.first,
            None if disbelieved else nchunks,
            base,
            self.storage.size,
            *self._plain_sizes(),
            count_confirmed,
        )
        evidence.disbelieved = disbelieved
        return evidence

    def _describe(self) -> Description | None:
        """Return what array the metadata describe, None if none."""
        metadata = self.metadata
        if not is_array(metadata):
            return None
        from .._format.array_metadata import Description  # NumPy takes long to import

        try:
            return Description(metadata)
        except FormatError as error:
            self.findings.add("metadata", "array", error.message)
            return None

    def _is_counted(self) -> bool:
        """Return whether number and sizes of the chunks make the array described."""
        header, last = self.header, self.stated_last
        if self.description is None or header is None or last is None:
            return False
        if -1 in (header.chunk_size, header.nchunks) or header.nchunks < 1:
            return False
        nbytes = (header.nchunks - 1) * header.chunk_size + last
        return nbytes == self.description.nbytes

    def _lacks_plain_bytes(self) -> bool:
        """Return whether the array described has more bytes than the chunks hold."""
        if self.description is None:
            return False
        found = sum(sum(chain.sizes) for chain in self.survey.chains)
        return found < self.description.nbytes

    def _is_torn(self) -> bool:
        """Return whether the file ends within a chunk, behind those that were found."""
        size, chains = self.storage.size, self.survey.chains
        trail = self.survey.trail(chains[-1].stop, size) if chains else []
        return bool(trail) and (trail[-1].stop or 0) > size

    def _plain_sizes(self) -> tuple[int | None, int | None]:
        """Return the plain sizes of the chunks and of the last one, None if any.

        In a file all but the last have the same. What most bytes are in is believed
        more than the header.
        """
        header, survey = self.header, self.survey
        chains = survey.chains
        if header is not None and (
            header.format_version < 2 or header.chunk_size == -1
        ):
            return None, None
        counts: dict[int, int] = {}
        for chain in chains:
            for size, count in Counter(chain.sizes).items():
                counts[size] = counts.get(size, 0) + size * count
        if not counts:
            return None, None
        usual = max(counts, key=lambda size: counts[size])
        if header is None:
            return usual, chains[-1].sizes[-1]
        last, full = self.stated_last, header.chunk_size
        if full in counts and (usual in (full, last) or self._confirms(full)):
            return full, self._last_size(full, last)
        # One chunk may be the last one.
        if (chains[-1].stop, counts) == (self.storage.size, {last: last}):
            return full, last
        # A damaged first chunk may still confirm it, or the table.
        first = survey.trail(self.first, self.first + 1) if self.first else ()
        if any(damaged.nbytes == full for damaged in first) or self._has_none_of(
            chains
        ):
            return full, last
        if last is not None and all(chain.sizes[-1] != last for chain in chains):
            last = chains[-1].sizes[-1]
        return usual, last

    def _confirms(self, full: int) -> bool:
        """Return whether a good chunk other than the last has that plain size."""
        end = self.storage.size
        for chain in self.survey.chains:
            stop = len(chain) - (chain.stop == end)
            if full in chain.sizes[:stop]:
                return True
        return False

    def _last_size(self, full: int, last: int | None) -> int | None:
        """Return the plain size of the last chunk, not what a damaged header says."""
        chain = self.survey.chains[-1]
        found = chain.sizes[-1]
        if last in (None, found) or chain.stop != self.storage.size or found > full:
            return last
        wrong = any(
            f.section == "header" and f.severity == ERROR for f in self.findings.kept
        )
        return found if wrong else last

    def _has_none_of(self, chains: list[Chain]) -> bool:
        """Return whether the table knows none of these chunks, moved or not."""
        places = {*self.table}
        extents = {stop - start for start, stop in pairwise(self.table)}
        return self.has_table and not any(
            chain.start in places or chain.stop_of(0) - chain.start in extents
            for chain in chains
        )
