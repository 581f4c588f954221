"""Numbers and names that the format fixes (docs/format.rst)."""

from __future__ import annotations

from collections import OrderedDict

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    CNAME_AVAIL: list[str]

MAGIC = b"blpk"
# How a .npy file begins.
NPY_MAGIC = b"\x93NUMPY"
FORMAT_VERSION = 3
MAX_FORMAT_VERSION = 255
EXTENSION = ".blp"

BLOSCPACK_HEADER_LENGTH = 32
METADATA_HEADER_LENGTH = 32
BLOSC_HEADER_LENGTH = 16
OFFSET_LENGTH = 8

MAX_CHUNKS = 2**63 - 1
MAX_META_SIZE = 2**32 - 1
# The largest buffer that Blosc 1 takes: 2 GiB less its own overhead.
MAX_BUFFERSIZE = 2**31 - 1 - BLOSC_HEADER_LENGTH
MAX_TYPESIZE = 255
# Maximum number of dimensions of an array: that of NumPy 2. NumPy 1 allows 32.
MAX_NDIM = 64

# As many as Blosc 1 can have.
MAX_THREADS = 256

MIN_CLEVEL = 0
MAX_CLEVEL = 9

CNAME_MAPPING = {0: "blosclz", 1: "lz4", 2: "snappy", 3: "zlib", 4: "zstd"}

SUFFIXES = OrderedDict(
    (("B", 1), ("K", 2**10), ("M", 2**20), ("G", 2**30), ("T", 2**40))
)


def __getattr__(name: str) -> list[str]:
    # Asking Blosc takes longer than everything else in this module together.
    if name == "CNAME_AVAIL":
        import blosc

        names: list[str] = blosc.compressor_list()
        globals()[name] = names
        return names
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
