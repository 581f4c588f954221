"""All that a dataset has, to be compared with what it had, or with another dataset."""

from __future__ import annotations

from bloscpack import dataset


def content(found):
    """Return items, dtypes and attributes of a dataset, or of the one at a path."""
    if not isinstance(found, (dataset.Array, dataset.Group, dataset.Table)):
        with dataset.open(found) as opened:
            return content(opened)
    attributes = found.attrs.asdict()
    if isinstance(found, dataset.Group):
        return attributes, {name: content(found[name]) for name in found}
    if isinstance(found, dataset.Table):
        return attributes, [(name, content(found[name])) for name in found.names]
    return attributes, found.shape, found[...].tolist(), str(found.dtype)
