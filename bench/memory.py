"""Run one action and print its memory in bytes.

The script imports only the modules that the action needs. It prints five numbers: the
peak before any import, the memory in use before the action (with its modules and its
input), the peak at the end, the size of the input, and the size of the result.
"""

import sys


def held(name: str) -> int:
    """Return VmRSS, the memory in use, or VmHWM, its peak, in bytes."""
    with open("/proc/self/status") as fp:
        for line in fp:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    raise SystemExit("this needs Linux: /proc/self/status has no %s" % name)


def read_array(path: str, nbytes: int):
    """Return a file as an array of doubles, read into the memory of the array."""
    import numpy

    array = numpy.empty(nbytes // 8, dtype="f8")
    with open(path, "rb") as fp:
        fp.readinto(memoryview(array).cast("B"))
    return array


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as fp:
        return fp.read()


def main() -> None:
    """Run the action that the command line names."""
    bare = held("VmHWM")
    action, source, target, codec, chunk_size, nthreads = sys.argv[1:]
    import os

    import blosc  # noqa: F401  loads NumPy, whatever the action

    import bloscpack as bp

    function = getattr(bp, action)
    options: dict = {"nthreads": int(nthreads)}
    if action.startswith("pack"):
        options["chunk_size"] = int(chunk_size)
        options["blosc_args"] = bp.BloscArgs(cname=codec)
    arguments: list = [source]
    given = 0
    if action.startswith("pack_ndarray") or action.endswith("from_bytes"):
        given = os.path.getsize(source)
        packs = action.startswith("pack")
        arguments = [read_array(source, given) if packs else read_bytes(source)]
    if action.endswith(("to_file", "file_from_file")):
        arguments.append(target)
    before = held("VmRSS")
    result = function(*arguments, **options)
    returned = 0
    if result is not None:
        returned = getattr(result, "nbytes", None) or len(result)
    print(bare, before, held("VmHWM"), given, returned)


if __name__ == "__main__":
    main()
