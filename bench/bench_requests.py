"""Count the requests and the bytes that reads of arrays at a URL take.

The arrays are opened before: that takes one request. The counts do not depend on the
machine. Object stores such as S3 get the same requests for parts of objects.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import contest
import numpy as np
from range_server import Handler, Server

from bloscpack import dataset

SHAPE = (64, 1024, 1024)  # of a stack of planes of uint8
ROWS = (20_000, 512)  # of float32
NUMBERS = 64  # of rows that are read by number, in any order
STACKS = {
    "default": {},
    "chunks=(1, 512, 512), shards=(16, 1024, 1024)": {
        "chunks": (1, 512, 512),
        "shards": (16, 1024, 1024),
    },
}
TABLES = {
    "default": {},
    "chunks=64": {"chunks": 64},
    "chunks=16": {"chunks": 16},
    "chunks=1, shards=1024": {"chunks": 1, "shards": 1024},
}


class Counting(Handler):
    """Counts the requests and the bytes of their responses."""

    requests = nbytes = 0

    def send_header(self, name: str, value: str) -> None:
        """Note the length of each response."""
        if name == "Content-Length":
            Counting.requests += 1
            Counting.nbytes += int(value)
        super().send_header(name, value)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yield the URL of a server of the folder."""
    Counting.folder = folder
    server = Server(("127.0.0.1", 0), Counting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        thread.join()


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where the arrays are written for a while")
    parser.add_argument("--json", default="bench/results/requests.json")
    return parser.parse_args()


def main() -> None:
    """Print the table, and write it to a file."""
    args = parse()
    numbers = np.random.default_rng(1)
    stack = np.clip(numbers.normal(120, 12, SHAPE), 0, 255).astype("u1")
    rows = np.round(numbers.normal(0, 1, ROWS), 3).astype("f4")
    picked = numbers.choice(ROWS[0], NUMBERS, replace=False)
    crop = slice(100, 356)
    of_stack = {"element": (5, 99, 99), "crop 256 x 256": (5, crop, crop), "plane": 5}
    of_rows = {"row": 7, "%d rows by number" % NUMBERS: picked}
    found = []
    with contest.scratch(args.folder) as folder, serving(Path(folder)) as url:
        for kind, items, cuts, reads in (
            ("stack", stack, STACKS, of_stack),
            ("rows", rows, TABLES, of_rows),
        ):
            for number, (cut, settings) in enumerate(cuts.items()):
                name = "%s-%d" % (kind, number)
                made = dataset.create_array(Path(folder) / name, items, **settings)
                made.close()
                for read, key in reads.items():
                    array = dataset.open(url + "/" + name)
                    Counting.requests = Counting.nbytes = 0
                    assert np.array_equal(items[key], array[key])
                    figures = Counting.requests, Counting.nbytes
                    found.append((kind, cut, read, *figures))
                    print("%-5s  %-46s  %-17s  %3d  %9d" % found[-1])
    names = "array", "cut", "read", "requests", "nbytes"
    contest.write(
        args.json, counts=[dict(zip(names, each, strict=True)) for each in found]
    )


if __name__ == "__main__":
    main()
