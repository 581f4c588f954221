"""Describe a file of another format: what `convert` would read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..._format.dtypes import encode_dtype
from ...describe import ratio_of
from .contents import ArrayContent, GroupContent, Request

if TYPE_CHECKING:
    from ...serializers import JsonObject
    from . import Format
    from .contents import Content


def describe_source(path: str, found: Format) -> JsonObject:
    """Return the description of a file of a format, in the form of that of a dataset.

    The items are not read, except those of a CSV file, whose types they tell.
    """
    cbytes = os.path.getsize(path)
    request = Request(path)
    with request.resources:
        content = found.read(path, request)
        described = _described("", content, found.name)
    ratio = ratio_of(described["nbytes"], cbytes)
    return {**described, "cbytes": cbytes, "ratio": ratio}


def _described(name: str, content: Content, layout: str) -> JsonObject:
    members = [_described(key, node, layout) for key, node in content.members.items()]
    described = {
        "name": name,
        "kind": content.kind,
        "layout": layout,
        "nbytes": content.nbytes,
    }
    if content.attrs:
        described["attributes"] = content.attrs
    if isinstance(content, ArrayContent):
        described["shape"] = list(content.shape)
        described["dtype"] = encode_dtype(content.dtype).strip("'")
        if content.fortran:
            described["order"] = "F"
    elif isinstance(content, GroupContent):
        described["members"] = members
    else:
        described.update(rows=content.length, columns=members)
    return described
