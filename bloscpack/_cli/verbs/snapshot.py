"""``blpk snapshot``: copy the state of a dataset at one moment."""

from __future__ import annotations

from argparse import Namespace

from ... import log
from ..args import number_of
from ..console import check_exists, quoted_input
from ..progress import shown

HELP = """\
copy the state of a dataset at one moment, also while it is written: its files
get second names where the file system has hard links, which takes milliseconds
and no room; both datasets can then be changed, each by itself

examples:
  %(prog)s log.zarr monday.zarr
  %(prog)s -f log.zarr last.zarr         replace an older copy
"""

OPTIONS = """\
--timeout <seconds>  how long to try while writers change the dataset again
    and again (default: 60)
source <source>  folder of a dataset
target <target>  new folder
"""
PROPERTIES = {"timeout": {"type": number_of("--timeout", float), "default": 60.0}}


def run(args: Namespace) -> None:
    """Make the copy."""
    from ...dataset import snapshot

    check_exists("dataset", args.source)
    with shown(args.source, None, args.progress) as bar:
        snapshot(
            args.source,
            args.target,
            force=args.force,
            sync=args.sync is not False,
            timeout=args.timeout,
            progress=bar,
        )
    log.verbose("%s: copied to '%s'" % (quoted_input(args.source), args.target))
