"""Texts for users name one thing in the singular: reprs, errors and commands."""

from __future__ import annotations

import re

import numpy as np
import pytest

import bloscpack as bp
from bloscpack import bigfile, dataset

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def texts(run, folder):
    """Texts about datasets and files that have one of each thing."""
    column = {"x": np.array([7], "u1")}
    found = []

    def error(kind, call):
        with pytest.raises(kind) as caught:
            call()
        found.append(str(caught.value))

    with dataset.create_group("g") as group:
        table = group.create_table("t", column)
        found += [repr(group), group.tree(), repr(table)]
        group.create_array("b", [1])
        error(IndexError, lambda: table[5])
        error(bp.UsageError, lambda: group["b"].append([1], axis=3))
        error(bp.UsageError, lambda: group.create_array("a", [1], dims=[3]))
    many = {"c%02d" % i: [1] for i in range(100)}
    for shown in range(1, 100):
        with dataset.create_table("many", dict([*many.items()][:shown]), mode="w") as t:
            found.append(repr(t))
        if "more" in found[-1]:
            break
    bp.save("a.blp", np.array([7], "u1"))
    bp.save("b.blp", np.array([8], "u1"))
    for arguments in (
        ("info", "g"),
        ("info", "a.blp"),
        ("show", "g"),
        ("show", "g/t"),
        ("list", "g"),
        ("verify", "g"),
        ("diff", "a.blp", "b.blp"),
    ):
        found.append("".join(run(*arguments)[1:]))
    with bigfile.File("tree", create=True) as tree:
        with tree.create("block", "u1", 1) as block:
            block.write(0, np.array([7], "u1"))
            error(bp.UsageError, lambda: block.read(3, 1))
            error(bp.UsageError, lambda: block.write(1, np.array([7], "u1")))
        found.append(repr(bigfile.Dataset(tree, ["block"])))
    found.append("".join(run("verify", "tree")[1:]))
    (folder / "tree/block/000000").write_bytes(b"")
    found.append("".join(run("verify", "tree")[1:]))
    return found


def test_one(texts):
    joined = "\n".join(texts)
    assert [] == re.findall(r"\b1 (?:more )?(?!axis)\w+s\b", joined)
    for expected in (
        "1 row, 1 column>",
        "1 row of x",
        "a table of 1 row",
        "an array of 1 axis",
        "expected 1 name,",
        "(1 more column)",
        "of 1 row",
        "1 byte",
        "1 of 1 item differs",
        "can't read 1 row from row 3 on: the block 'block' has 1 row",
        "can't write 1 row from row 1 on: the block 'block' has 1 row",
        "Dataset of 1 row",
        "1 block, 1 data file, 1 byte",
    ):
        assert expected in joined
