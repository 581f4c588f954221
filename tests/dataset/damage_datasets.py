"""Datasets of each layout, and damage of their files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from dataset import documents
from dataset.layouts import SHARDED

from bloscpack import dataset
from bloscpack.dataset.folder import Folder
from bloscpack.dataset.layouts import array_class
from bloscpack.dataset.layouts.base import NewItems
from bloscpack.dataset.layouts.shard_grid import ShardIndex

FILL = 7


def numbers(count=100):
    """Return items that do not compress to nothing, and none is `FILL`."""
    return np.random.default_rng(3).integers(1000, 2**40, count)


def options(layout):
    return {"chunks": 10, "shards": 30} if layout in SHARDED else {"chunks": 10}


def new_array(path, layout, **more):
    """Make an array of ten chunks, in four files of three, or in a file for each."""
    return dataset.create_array(
        path,
        numbers(),
        layout=layout,
        # The value of new items alone, as of `from_xarray`: a lost shard is an error.
        fill_value=NewItems(FILL),
        attrs={"unit": "m"},
        **options(layout),
        **more,
    ).close()


def new_table(path, layout):
    """Make a table of two columns."""
    columns = {"x": numbers(), "y": numbers().astype("f4")}
    dataset.create_table(
        path, columns, layout=layout, attrs={"a": 1}, **options(layout)
    ).close()
    return columns


def shorten_column(path, layout, length):
    """Let another program set the length of a column."""
    if layout == "bcolz":
        edit_json(path + "/meta/sizes", lambda value: value.update(shape=[length]))
        return
    document = documents.read(Path(path, "zarr.json"))
    documents.write(Path(path, "zarr.json"), {**document, "shape": [length]})


def source_of(path, layout):
    """Return the chunks of an array."""
    return array_class(layout)(Folder.open(path)).parts()[0][1]


def files_of(path, layout):
    """Return the paths of the files of an array, in order."""
    source = source_of(path, layout)
    names = [source.names(number) for number in source.stored()]
    folder = os.path.join(path, *source.folder.prefix.split("/"))
    return [os.path.join(folder, *name.split("/")) for name in names]


def chunk_extent(path, layout, number):
    """Return the file and the extent of a chunk, as (path, start, stop)."""
    files = files_of(path, layout)
    if layout not in SHARDED:
        return files[number], 16, os.path.getsize(files[number])
    file = files[number // 3]
    folder = Folder.open(os.path.dirname(file))
    sharding = source_of(path, layout).sharding
    index = ShardIndex(folder.storage(os.path.basename(file)), sharding)
    start, size = index.extent(number)
    return file, start, start + size


def flip(path, offset):
    """Flip a bit."""
    with open(path, "r+b") as fp:
        fp.seek(offset)
        byte = fp.read(1)[0]
        fp.seek(offset)
        fp.write(bytes([byte ^ 0x10]))


def flip_chunk(path, layout, number):
    """Damage a chunk so that it can't be decompressed."""
    file, start, stop = chunk_extent(path, layout, number)
    # Without digests, only some bytes matter: here those of the plain size.
    flip(file, start + 5 if layout not in SHARDED else (start + stop) // 2)


def truncate(path, size):
    with open(path, "r+b") as fp:
        fp.truncate(size)


def edit_json(path, change):
    """Change the value in a file of JSON."""
    with open(path, encoding="utf-8") as fp:
        value = json.load(fp)
    change(value)
    with open(path, "wb") as fp:
        fp.write(documents.signed(value))
