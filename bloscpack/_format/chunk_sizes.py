"""The size and the number of the chunks into which plain bytes are divided."""

from __future__ import annotations

from .. import log
from ..abstract_objects import plain_number
from ..constants import MAX_BUFFERSIZE, MAX_CHUNKS
from ..defaults import DEFAULT_CHUNK_SIZE
from ..exceptions import ChunkingException, UsageValueError
from ..headers import check_range
from ..pretty import double_pretty_size, reverse_pretty


def parse_chunk_size(chunk_size: int | str) -> int:
    """Return a chunk size in bytes.

    Parameters
    ----------
    chunk_size
        Number of bytes, or text: a number, perhaps with a suffix, such as ``'1M'`` (see
        `bloscpack.pretty.reverse_pretty`), or ``'max'`` for the largest chunk size.

    Raises
    ------
    UsageError
        The size is not in the range 1 to 2147483631. This is a ``ValueError`` too.
    """
    if chunk_size == "max":
        chunk_size = MAX_BUFFERSIZE
    elif isinstance(chunk_size, str):
        is_number = chunk_size.isascii() and chunk_size.isdecimal()
        chunk_size = reverse_pretty(chunk_size + "B" * is_number)
    check_range("chunk_size", chunk_size, 1, MAX_BUFFERSIZE)
    return plain_number(chunk_size)


def calculate_nchunks(
    in_file_size: int, chunk_size: int | str = DEFAULT_CHUNK_SIZE
) -> tuple[int, int, int]:
    """Return number of chunks, chunk size and size of the last chunk.

    An input that is smaller than the chunk size becomes one chunk of its own size.

    Parameters
    ----------
    in_file_size
        Size of the input in bytes.
    chunk_size
        Plain bytes of a chunk, as in `parse_chunk_size`.

    Returns
    -------
    tuple
        The number of chunks, and two sizes in bytes.

    Raises
    ------
    UsageError
        A size is out of range. This is a ``ValueError`` too.
    ChunkingException
        There are more chunks than a file can have.

    Examples
    --------
    >>> calculate_nchunks(24000, '8K')
    (3, 8192, 7616)
    """
    chunk_size = parse_chunk_size(chunk_size)
    in_file_size = plain_number(in_file_size)
    if in_file_size < 0:
        raise UsageValueError(
            "'in_file_size' must be strictly positive, not %d" % in_file_size
        )
    if in_file_size == 0:
        return 1, 0, 0
    if chunk_size > in_file_size:
        if log.enabled(log.VERBOSE):
            log.verbose(
                "Input was smaller than the given 'chunk_size': %s using: %s"
                % (double_pretty_size(chunk_size), double_pretty_size(in_file_size))
            )
        chunk_size = in_file_size
    full, rest = divmod(in_file_size, chunk_size)
    nchunks, last_chunk = (full + 1, rest) if rest else (full, chunk_size)
    if nchunks > MAX_CHUNKS:
        raise ChunkingException(
            "'%d' bytes in chunks of '%d' bytes make '%d' chunks, but at most '%d' are "
            "possible" % (in_file_size, chunk_size, nchunks, MAX_CHUNKS)
        )
    if log.enabled(log.VERBOSE):
        log.verbose("nchunks: %d" % nchunks)
        log.verbose("chunk_size: %s" % double_pretty_size(chunk_size))
        log.verbose("last_chunk_size: %s" % double_pretty_size(last_chunk))
    return nchunks, chunk_size, last_chunk
