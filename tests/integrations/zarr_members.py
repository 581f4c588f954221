"""Prints what zarr-python and xarray find in groups: run with the paths of groups.

Other releases run it in environments of their own, so it imports nothing else.
"""

import json
import sys
import warnings


def by_zarr(path):
    """Return the items of all arrays by their paths, and None for groups."""
    import zarr

    group = zarr.open_group(path, mode="r")
    found = {}
    for name, node in group.members(max_depth=None):
        found[name] = None if isinstance(node, zarr.Group) else node[...].tolist()
        assert group[name].name == node.name
    return found


def by_xarray(path):
    """Return the same, without the empty group: from a tree, and from each group."""
    import xarray

    with xarray.open_datatree(path, engine="zarr") as tree:
        whole = _variables(tree)
    each = {}
    for node in {"": None, **whole}:
        if whole.get(node) is None:
            with xarray.open_zarr(path, group=node or None, chunks=None) as opened:
                inner = {n: v.values.tolist() for n, v in opened.variables.items()}
            each |= {node: None} if node else {}
            each |= {(node + "/" + n).strip("/"): v for n, v in inner.items()}
    assert whole == each, (whole, each)
    return whole


def _variables(tree):
    found = {}
    for node in tree.subtree:
        prefix = node.path.strip("/")
        if prefix:
            found[prefix] = None
        for name, variable in node.to_dataset(inherit=False).variables.items():
            found[(prefix + "/" + name).strip("/")] = variable.values.tolist()
    return found


def main(paths):
    warnings.simplefilter("ignore")  # consolidated metadata are no standard
    reads = {"zarr": by_zarr, "xarray": by_xarray}
    found = {}
    for path in paths:
        for name, read in reads.items():
            try:
                found[name + " " + path] = read(path)
            except Exception as error:  # shown by the test
                found[name + " " + path] = "%s: %s" % (type(error).__name__, error)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
