"""Write the new file of a repack: copy the chunks, or cut the plain bytes again.

If chunks of the same size with the same compression are wanted, they are copied byte
by byte. Otherwise they are decompressed and cut again. Either way every digest is
verified, and the work is done by all threads, a few chunks at a time. A file without
digests is decompressed to find damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .._engine.blosc_settings import own_settings
from .._engine.threads import RUN, ordered
from .._format.array_metadata import Description
from .._format.chunks import Frame, check_frame, plain_of
from .._format.shard import new_trailer
from .._types import BinaryFile, Buffer, Json, Writable
from ..abstract_io import (
    QUICK_CHUNK,
    RUN_TO_COMPRESS,
    PlainSource,
    Progress,
    effective_nthreads,
    pack,
)
from ..args import (
    BLOSC_ARGS,
    BloscArgs,
    BloscpackArgs,
    MetadataArgs,
    fit_settings,
    goal_of,
    known_settings,
)
from ..defaults import CHUNK_SIZE_NOT_GIVEN
from ..file_io import CompressedFPSink, CompressedFPSource
from ..headers import plain_number
from ..serializers import SHARD, is_array, is_grid
from .array_reader import CACHE_NBYTES
from .opened import OpenedFile, reader_of
from .repack_plan import SETTINGS, RepackKeywords, RepackPlan, Survey

if TYPE_CHECKING:
    from typing_extensions import Unpack


def repack_fp(
    in_fp: BinaryFile,
    out_fp: Writable,
    *,
    nthreads: int | None = None,
    progress: Progress | None = None,
    expect: Callable[[int], object] | None = None,
    **settings: Unpack[RepackKeywords],
) -> None:
    """Write the file in one file object with other settings into another.

    Parameters
    ----------
    in_fp
        The file, used from its beginning. It must be able to seek.
    out_fp
        A new file, which is written.
    settings, nthreads, progress, expect
        As in `repack`, and so are the errors.
    """
    found: Any = known_settings(settings, SETTINGS)
    old = Survey(in_fp)
    # The metadata may be any value, which stays as it is.
    found |= {k: plain_number(v) for k, v in found.items() if k != "metadata"}
    blocksize = _choose(found, in_fp, old) if goal_of(found.get("auto")) else 0
    plan = RepackPlan(old, found)
    if plan.blosc_args is not None:
        plan.blosc_args.blocksize = blocksize
    if expect is not None:
        expect(old.nbytes if plan.grid is None else plan.header.nbytes or 0)
    write_planned(plan, in_fp, out_fp, nthreads, progress)


def _choose(settings: dict[str, Any], in_fp: BinaryFile, old: Survey) -> int:
    """Add the settings that fit the plain bytes; return the block size."""
    metadata = old.beginning.metadata
    given = {name: value for name, value in settings.items() if value is not None}
    keywords = {name: given[name] for name in ("auto", *BLOSC_ARGS) if name in given}
    keywords["shard"] = given.get("shard", is_array(metadata) and SHARD in metadata)
    typesizes = array_typesizes(metadata)
    chunk_size = given.get("chunk_size", CHUNK_SIZE_NOT_GIVEN)
    in_grid = is_grid(metadata) or "chunks" in given
    if in_grid:
        chunk_size = max(1, old.geometry[1])
    in_fp.seek(0)
    # Every piece of the sample may be in the same chunk.
    with OpenedFile(in_fp, cache_nbytes=max(old.geometry[1], CACHE_NBYTES)) as parts:
        sample = (lambda start, size: parts.read(start, start + size)), old.nbytes
        chunk_size, found = fit_settings(keywords, chunk_size, None, sample, typesizes)
    assert isinstance(found, BloscArgs)
    settings.update(found)
    if not in_grid:
        settings["chunk_size"] = chunk_size
    return found.blocksize


def array_typesizes(metadata: Json) -> list[int]:
    """Return the type size of the array that metadata describe, in a list."""
    from ..numpy_io import typesize_of

    if not is_array(metadata):
        return []
    return [typesize_of(Description(metadata).dtype)]


def write_planned(
    plan: RepackPlan,
    in_fp: BinaryFile,
    out_fp: Writable,
    nthreads: int | None,
    progress: Progress | None,
) -> None:
    """Write the new file of a plan. The arguments are those of `repack_fp`."""
    old, count = plan.old, effective_nthreads(nthreads, None)
    in_fp.seek(0)
    source = CompressedFPSource(in_fp)
    sink = CompressedFPSink(out_fp)
    if plan.blosc_args is None:
        _copy(source, sink, plan, effective_nthreads(count, old.geometry[0]), progress)
        return
    in_fp.seek(0)
    if plan.grid is None:
        parts = OpenedFile(in_fp, nthreads=nthreads, cache_nbytes=2 * old.geometry[1])
        plain: PlainSource = _Recut(parts)
    else:
        from ..numpy_io import GridSource

        read = reader_of(OpenedFile(in_fp, nthreads=1)).get
        plain = GridSource(read, plan.grid, padded=is_grid(plan.metadata))
    pack(
        plain,
        sink,
        *plan.geometry,
        metadata=plan.section,
        blosc_args=plan.blosc_args,
        bloscpack_args=BloscpackArgs(
            plan.header.offsets, plan.header.checksum, plan.header.max_app_chunks
        ),
        nthreads=count,
        progress=progress,
    )


# Copying chunks


def _copy(
    source: CompressedFPSource,
    sink: CompressedFPSink,
    plan: RepackPlan,
    nthreads: int,
    progress: Progress | None,
) -> None:
    """Copy the chunks, and the digests too if the checksum is the same."""
    header = plan.header
    old, new = source.bloscpack_header.checksum_impl, header.checksum_impl
    sink.configure(BloscArgs(), header)
    sink.write_bloscpack_header()
    if plan.section is not None:
        sink.write_metadata(plan.section, MetadataArgs())
        sink.trailer = new_trailer(plan.section.value, header)
    sink.init_offsets()

    def work(frame: Frame) -> tuple[bytes, bytes, int]:
        compressed, digest = map(bytes, frame.content)
        if old.size:
            check_frame(frame, old)
        else:
            plain_of(frame, old)  # raises if the chunk is damaged
        if new is not old:
            digest = new(compressed)
        return compressed, digest, frame.header.nbytes

    def deliver(chunk: tuple[bytes, bytes, int]) -> None:
        compressed, digest, nbytes = chunk
        sink.store(0, compressed, digest)
        if progress is not None:
            progress(nbytes)

    size = max(header.chunk_size, 1)
    batch = max(1, RUN_TO_COMPRESS // size)
    with own_settings:
        ordered(source.frames(), work, deliver, nthreads, batch, size < QUICK_CHUNK)
    sink.finalize()


# Cutting chunks again


class _Recut(PlainSource):
    """Yields the plain bytes of a file in chunks of another size."""

    lasting = True

    def __init__(self, old: OpenedFile) -> None:
        self._old = old

    def __iter__(self) -> Iterator[Buffer]:
        size = max(1, self.chunk_size)
        run = max(1, RUN // size) * size  # the threads share its chunks
        for start, stop in self.spans():
            if start % run == 0:
                first, block = start, self._old.read(start, start + run)
            yield memoryview(block)[start - first : stop - first]
