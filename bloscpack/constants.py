"""Numbers and names that the file format fixes, and limits on values from files."""

from __future__ import annotations

from collections import OrderedDict

from ._compat import sibling_names

TYPE_CHECKING = False  # mypy reads it as True; importing typing costs start-up time
if TYPE_CHECKING:
    # Names of the codecs of the installed Blosc, found at run time by `__getattr__`.
    CNAME_AVAIL: list[str]
    # Name of each codec by its number in the header of a chunk; defined in `codecs`.
    CNAME_MAPPING: dict[int, str]

# First bytes of a Bloscpack file and of a .npy file.
MAGIC = b"blpk"
NPY_MAGIC = b"\x93NUMPY"
# First and last bytes of an undo record: docs/format.rst (Undo record).
RECORD_MAGIC = b"\xffundo\r\n\x1a"
# Version of the files that are written.
FORMAT_VERSION = 3
# Largest number that the version byte of a file header can store.
MAX_FORMAT_VERSION = 255
# File name extension of Bloscpack files.
EXTENSION = ".blp"

# Sizes of fixed-size records, in bytes.
BLOSCPACK_HEADER_LENGTH = 32
METADATA_HEADER_LENGTH = 32
BLOSC_HEADER_LENGTH = 16
OFFSET_LENGTH = 8

# Maximum number of chunks, and of bytes in a file: both are stored as int64.
MAX_CHUNKS = 2**63 - 1
# Maximum size in bytes of the metadata text: it is stored as uint32.
MAX_META_SIZE = 2**32 - 1
# Maximum size in bytes of a buffer that Blosc 1 compresses: 2 GiB less its overhead.
MAX_BUFFERSIZE = 2**31 - 1 - BLOSC_HEADER_LENGTH
# Maximum item size in bytes that Blosc can filter: it is stored as uint8.
MAX_TYPESIZE = 255
# Maximum number of dimensions of an array: that of NumPy 2. NumPy 1 allows 32.
MAX_NDIM = 64
# Maximum number of arrays and objects in the metadata that contain each other. Python
# could parse deeper values, but neither show nor compare them without exhausting its
# stack.
MAX_METADATA_NESTING = 100
# Maximum number of digits of a whole number in the metadata: that of Python, which
# takes a time that grows with the square of it.
MAX_METADATA_DIGITS = 4300
# Maximum size in bytes of a document of a dataset or an archive: attributes of large
# datasets have a few MiB, and no more is read into memory.
MAX_DOCUMENT = 64 * 2**20
# Maximum number of open brackets in the text of a dtype. Each level of a nested dtype
# takes two, and releases up to 0.16 could write as many as Python's parser reads.
MAX_LITERAL_NESTING = 200

# Maximum number of threads: that of Blosc 1.
MAX_THREADS = 256

# Range of compression levels of Blosc and of the metadata codecs.
MIN_CLEVEL = 0
MAX_CLEVEL = 9

# Number of bytes for each suffix of a size, such as in '23.44K'.
SUFFIXES = OrderedDict(
    (("B", 1), ("K", 2**10), ("M", 2**20), ("G", 2**30), ("T", 2**40))
)


_sibling = sibling_names(__name__)


def __getattr__(name: str) -> object:
    # Importing Blosc takes longer than everything else in this module together.
    if name == "CNAME_AVAIL":
        import blosc

        return globals().setdefault(name, blosc.compressor_list())
    return _sibling(name)  # programs call `constants.blosc.set_nthreads`
