"""Reads a file or folder with the package and with the independent reader.

`read_here` and `read_there` return the same tree of dicts: groups with members, tables
with columns, arrays with their items. In place of what a reader refuses is a `Refusal`.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import NamedTuple

import numpy as np
from format import independent_datasets
from format.independent_reader import NotSupported, Refused

import bloscpack as bp
from bloscpack import dataset
from bloscpack.exceptions import (
    DoesNotFit,
    FormatError,
    NotReadable,
    StorageError,
    Unsupported,
    UsageError,
)

ERRORS = (FormatError, NotReadable, StorageError, UsageError, DoesNotFit)


class Refusal(NamedTuple):
    """The reason of a reader: a rule, or the message of an error.

    The verdict is ``"damage"``, or ``"unsupported"`` if nothing need be damaged.
    """

    reason: str
    verdict: str = "damage"


# An array that zarr-python reads, if it is installed, and this package does not.
BY_OTHERS = Refusal("not read by this package", "unsupported")


def refusing(read, *arguments):
    """Return what a function reads, or its refusal."""
    try:
        return read(*arguments)
    except (Refused, *ERRORS, FileNotFoundError) as error:
        return refusal_of(error)


def refusal_of(error):
    """Return the refusal that an error of one of the readers is."""
    message = getattr(error, "message", str(error))
    is_codec = "Only codecs that run no code of their own are used" in message
    if is_codec or "zarr' can't be imported" in message:
        return BY_OTHERS
    damage = isinstance(error, (FormatError, OSError, Refused))
    if isinstance(error, (NotReadable, Unsupported, NotSupported)):
        damage = False
    reason = re.sub("'/[^']*'", "'PATH'", message)
    return Refusal(reason, "damage" if damage else "unsupported")


def read_here(path):
    """Return what the package reads at a path; messages have 'PATH' for any path."""
    return refusing(_read_here, path)


def _read_here(path):
    if path.is_dir():
        with dataset.open(path) as opened:
            return _node(opened)
    if path.suffix == ".zip":
        with bp.loadz(path) as archive:
            members = {name: refusing(_member, archive, name) for name in archive}
            return {"kind": "group", "attributes": {}, "members": members}
    plain, metadata = bp.unpack_bytes_from_file(path)
    if isinstance(metadata, dict) and metadata.get("container") in ("numpy", "grid"):
        return _array(bp.unpack_ndarray_from_file(path), {})
    return {"kind": "bytes", "metadata": metadata, "bytes": plain}


def _member(archive, name):
    return _array(archive[name], {})


def _node(opened):
    if opened.layout == "zarr-python":
        return BY_OTHERS
    attributes = dict(opened.attrs)
    if isinstance(opened, dataset.Group):
        members = {name: refusing(_opened, opened, name) for name in opened}
        return {"kind": "group", "attributes": attributes, "members": members}
    if isinstance(opened, dataset.Table):
        columns = {name: _node(column) for name, column in opened.columns.items()}
        return {"kind": "table", "attributes": attributes, "columns": columns}
    return _array(opened[...], attributes)


def _opened(group, name):
    return _node(group[name])


def _array(items, attributes):
    items = np.asarray(items)
    dtype = items.dtype
    if dtype.kind == "O":  # text of variable length
        tree = {"kind": "array", "dtype": _text("string"), "shape": list(items.shape)}
        content = json.dumps(items.reshape(-1).tolist()).encode()
        return {**tree, "attributes": attributes, "items": content}
    descr = [] if dtype.names == () else dtype.descr if dtype.names else dtype.str
    return {
        "kind": "array",
        "dtype": _text(descr),
        "shape": list(items.shape),
        "attributes": attributes,
        "items": items.tobytes("C"),
    }


def _text(dtype):
    return json.dumps(dtype)


def read_there(path):
    """Return what the independent reader reads at a path."""
    return _normal(refusing(independent_datasets.read, str(path)))


def _normal(node):
    if isinstance(node, Refused):
        return refusal_of(node)
    if isinstance(node, Refusal):
        return node
    node = dict(node)
    if node["kind"] == "array":
        node["dtype"] = _text(node["dtype"])
    for inner in ("members", "columns"):
        if inner in node:
            node[inner] = {name: _normal(each) for name, each in node[inner].items()}
    refused = [
        each for each in node.get("columns", {}).values() if isinstance(each, Refusal)
    ]
    return refused[0] if refused else node  # all columns of a table, or none


def without_reasons(node):
    """Return a tree in which all refusals with the same verdict are equal."""
    if isinstance(node, Refusal):
        return node._replace(reason="")
    if not isinstance(node, dict):
        return node
    return {
        key: {name: without_reasons(each) for name, each in value.items()}
        if key in ("members", "columns")
        else value
        for key, value in node.items()
    }


def refusals(node, place=""):
    """Return the refusals in a tree, by the place of the node; '' is its root."""
    if isinstance(node, Refusal):
        return {place: node}
    found = {}
    for name, each in {**node.get("members", {}), **node.get("columns", {})}.items():
        found |= refusals(each, place + "/" + name)
    return found


def summary(node):
    """Return a tree for JSON, with the SHA-256 of items and bytes."""
    if isinstance(node, Refusal):
        return {"refused": node.reason}
    if not isinstance(node, dict):
        return node
    return {
        key: hashlib.sha256(value).hexdigest()
        if isinstance(value, bytes)
        else {name: summary(each) for name, each in value.items()}
        if key in ("members", "columns")
        else value
        for key, value in node.items()
    }
