"""Judge a recovery: which intact chunks it saved, and what it wrongly calls certain.

A chunk is *intact* if all bytes of the chunk and of its digest are in the damaged file,
in their order and side by side. The origin of each byte tells this: equal bytes from
elsewhere do not count. A repeated stretch makes copies of a chunk; one has to be saved.

``Recovery.certain`` claims two things:

* Each copied chunk is in its place. `_wrong_numbers` compares the output with the
  original file: each chunk that is not told to be lost, and the number of plain bytes.
* The file contained nothing else, except what the report names. `_unreported` divides
  the bytes of the damaged file into the sections, one copy of each intact chunk, and
  other stretches. A finding has to touch each of these stretches, and each further copy
  of an intact chunk. If the sections differ, a finding has to be about them.

``Recovery.placed`` claims the first, except for the number of plain bytes.

``Recovery.complete``, and exit code 0 with it, claims further that nothing is lost: the
plain bytes and the metadata are those of the original file.
"""

from __future__ import annotations

import io
import signal
import time
from collections import Counter

import numpy
from check.cases import frames_of

from bloscpack.checksums import CHECKSUMS_LOOKUP
from bloscpack.exceptions import FormatError
from bloscpack.file_io import CompressedBytesSource
from bloscpack.recover import recover_fp
from bloscpack.verify import verify_fp

# A recovery that takes longer, in seconds, is reported; one that hangs is ended.
SLOW = 5
HANGS = 60


def intact_copies(frames, origin):
    """Return where in the damaged file copies of each chunk start, if it is intact."""
    places = numpy.array(origin, dtype="i8")
    copies = []
    for start, stop, _ in frames:
        expected = numpy.arange(start, stop)
        found = [
            int(at)
            for at in numpy.flatnonzero(places == start)
            if numpy.array_equal(places[at : at + len(expected)], expected)
        ]
        copies.append(found)
    return copies


def judge(damaged, hangs=HANGS):
    """Recover a damaged file, dropping and filling; return the outcome as a dict.

    A recovery that takes `hangs` seconds is ended; 0 for no limit.
    """
    sample = damaged.sample
    copies = intact_copies(sample.frames, damaged.origin)
    intact = [i for i, found in enumerate(copies) if found]
    outcome = {"chunks": len(copies), "intact": intact, "saved": [], "placed": []}
    outcome |= {"certain": False, "complete": False, "wrong": [], "excused": []}
    start = time.monotonic()
    if hangs:
        signal.signal(signal.SIGALRM, _raise_timeout)
        signal.alarm(hangs)
    try:
        _, dropped, _ = recovered(damaged.data, drop=True)
        new, filled, recovery = recovered(damaged.data)
        outcome["sound"] = verify_fp(io.BytesIO(new), nthreads=1).ok
    except FormatError:
        return outcome | {"refused": True}
    except Exception as error:
        return outcome | {"raised": repr(error)[:300]}
    finally:
        if hangs:
            signal.alarm(0)
        elapsed = time.monotonic() - start
        if elapsed > SLOW:
            outcome["seconds"] = round(elapsed, 1)
    plains = [plain for _, _, plain in sample.frames]
    known = {*plains, *sample.older}
    left = Counter(dropped)
    for i in intact:
        if left[plains[i]]:
            left[plains[i]] -= 1
            outcome["saved"].append(i)
    outcome["placed"] = [
        i for i in outcome["saved"] if [plains[i]] == filled[i : i + 1]
    ]
    outcome["certain"], outcome["complete"] = recovery.certain, recovery.complete
    outcome["proven places"] = getattr(recovery, "placed", False)
    outcome["count"] = len(filled) == len(plains)
    outcome["foreign"] = sum(plain not in known for plain in dropped)
    outcome["findings"] = [str(finding) for finding in recovery.report.findings[:20]]
    if recovery.certain or recovery.complete or outcome["proven places"]:
        wrong = {*_wrong_numbers(filled, plains, known, recovery)}
        if not recovery.certain:
            wrong.discard("length")
        else:
            wrong |= {*_unreported(damaged, copies, recovery)}
        if recovery.complete and metadata_of(new) != metadata_of(sample.whole):
            wrong.add("metadata")
        excused = wrong & {*_excused(damaged, copies, filled, recovery)}
        outcome["wrong"] = sorted(wrong - excused)
        outcome["excused"] = sorted(wrong & excused)
    return outcome


def _raise_timeout(signum, frame):
    raise TimeoutError("the recovery took over %d seconds" % HANGS)


def recovered(data, **options):
    """Return the new file, the plain bytes of its chunks, and the recovery."""
    out_fp = io.BytesIO()
    recovery = recover_fp(io.BytesIO(data), out_fp, nthreads=1, **options)
    new = out_fp.getvalue()
    return new, [plain for _, _, plain in frames_of(new)], recovery


def metadata_of(data):
    """Return the metadata of a file."""
    return CompressedBytesSource(data).metadata


def _wrong_numbers(filled, plains, known, recovery):
    """Yield what is wrong with the chunks of the output and with its length."""
    lost = {i for loss in recovery.losses for i in range(*loss.chunks)}
    for i, plain in enumerate(filled):
        if i not in lost and [plain] != plains[i : i + 1]:
            yield "misplaced" if plain in known else "foreign"
    if sum(map(len, filled)) != sum(map(len, plains)):
        yield "length"


def _unreported(damaged, copies, recovery):
    """Yield "unreported" if the file contains something else that no finding names."""
    if damaged.data == damaged.sample.whole:
        return
    findings = recovery.report.findings
    frames, size = damaged.sample.frames, len(damaged.data)
    extents = []
    named = [_named(finding) for finding in findings]
    for (start, stop, _), found in zip(frames, copies, strict=True):
        spans = [(at, at + stop - start) for at in found]
        silent = [span for span in spans if not _touches(named, *span)]
        extents += silent or spans[:1]
        if len(silent) > 1:
            yield "unreported"
    if not extents:
        return
    first, end = min(extents)[0], 0
    for start, stop in [*sorted(extents), (size, size)]:
        if end < start and end >= first and not _touches(named, end, start):
            yield "unreported"
        end = max(end, stop)
    sections = any(finding.section != "chunks" for finding in findings)
    if (
        not sections
        and not _touches(named, 0, first)
        and _head_differs(damaged, copies)
    ):
        yield "unreported"


def _head_differs(damaged, copies):
    """Return whether the sections differ, except for the entries of lost chunks.

    Nothing tells what such an entry should be.
    """
    sample = damaged.sample
    head, expected = (
        damaged.data[: sample.first],
        bytearray(sample.whole[: sample.first]),
    )
    at = sample.table[0]
    if at < sample.first:
        for found in copies:
            if not found:
                expected[at : at + 8] = head[at : at + 8]
            at += 8
    return head != expected


def _named(finding):
    """Return the extent in the file that a finding names, None if it names none."""
    if finding.extent is not None:
        return finding.extent
    return None if finding.offset is None else (finding.offset, finding.offset)


def _touches(named, start, stop):
    return any(at is not None and at[0] <= stop and start <= at[1] for at in named)


def _excused(damaged, copies, filled, recovery):
    """Yield what nothing in the file could have prevented.

    Without digests, Blosc decompresses damaged bytes unnoticed. A chunk is misplaced
    where the offset table, or the chunk in front of it, says that the chunk of its new
    number begins.
    """
    sample = damaged.sample
    if sample.checksum == "None":
        yield from ("foreign", "unreported")
    start, nchunks = sample.table[0], len(sample.frames)
    used = slice(start, min(start + 8 * nchunks, sample.first))
    if damaged.data[used] != sample.whole[used]:
        return
    lost = {i for loss in recovery.losses for i in range(*loss.chunks)}
    plains = [plain for _, _, plain in sample.frames]
    places = [*_places(damaged)]
    for i, plain in enumerate(filled):
        same = [at for at, other in zip(copies, plains, strict=True) if plain == other]
        found = [at for starts in same for at in starts]
        in_place = i < len(places) and places[i] in found
        if i not in lost and not in_place and (found or plain in sample.older):
            return
    yield "misplaced"


def _places(damaged):
    """Yield where the file says that each chunk begins.

    The offset table says it, or the chunks do: each tells where it ends.
    """
    sample, data = damaged.sample, damaged.data
    frames = sample.frames
    if sample.table[0] < sample.first:
        yield from (start for start, _, _ in frames)
        return
    start, digest_size = sample.first, CHECKSUMS_LOOKUP[sample.checksum].size
    while len(data) >= start + 16:
        yield start
        size = int.from_bytes(data[start + 12 : start + 16], "little")
        start += max(1, size) + digest_size
