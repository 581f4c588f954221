"""``blpk bigfile``: list, show, create, change, copy and check BigFile trees.

The actions have the names, and take the arguments, of the programs ``bigfile-ls``,
``bigfile-cat`` and so on. `ACTIONS` has a record for each, `OPTIONS` their options.
Before an action, an option has the meaning that it has for every verb; behind it, that
of the action: ``-n`` is the number of data files where the action creates some.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import UnsupportedOperation
from typing import Any, BinaryIO, NamedTuple

import numpy

from ..._format.dtypes import Array, DType
from ..._storage.base import read_up_to
from ..._storage.stream import seekable_with_size
from ..._types import JsonObject
from ...bigfile import Column, File, copy, verify
from ...bigfile.attributes import FORMATS, humane
from ...bigfile.header import MODULUS, folded, new_header
from ...exceptions import StorageError
from ...log import counted, encodable, printable, verbose
from ..args import add_options
from ..console import STREAM, console
from ..exit_codes import EXIT_OK, Refusal, WrongUsage, for_each_file
from ..progress import shown
from ..target import check_no_terminal, opened_input
from ..text import say_json, say_json_list

# Number of bytes that `cat` reads at a time: of raw items, and of items that become
# objects of Python, which need ten times as much memory.
RAW_NBYTES = 2**22
TEXT_NBYTES = 2**19
# A conversion of printf with the size of a type in C, which Python does not know.
_SIZED = re.compile("(%[-+ #0-9.]*)(?:hh|ll|[hlLjzt])(?=[a-zA-Z])")

HELP = """\
work with a BigFile tree, a folder of columns

examples:
  %(prog)s ls -l PART_018              type, row width, rows of each block
  %(prog)s cat -o 9 -c 5 PART_018 0/Mass
  %(prog)s set-attr PART_018 Header Time 0.5"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of the verb."""
    actions: Any = parser.add_subparsers(
        title="actions", metavar="<action>", dest="action", required=True
    )
    for name, action in ACTIONS.items():
        add_action = partial(_add_action, action)
        actions.add_parser(name, help=action.help, add_arguments=add_action)


def _add_action(action: Action, parser: ArgumentParser) -> None:
    """Add the arguments of an action to its parser."""
    parser.usage = "%s [options] <tree> %s" % (parser.prog, action.usage)
    parser.description = action.help
    lines = [ARGUMENTS, *(OPTIONS[name] for name in action.options.split())]
    add_options(parser, "\n".join(lines), **PROPERTIES)


def writes_data(args: Namespace) -> bool:
    """Return whether data go to standard output."""
    return args.action in ("cat", "get-attr")


def run(args: Namespace) -> int:
    """Run the action."""
    action = ACTIONS[args.action]
    if not action.accepts(len(args.names)):
        raise WrongUsage(
            "bigfile %s: wrong number of arguments: expected <tree> %s"
            % (args.action, action.usage)
        )
    return action.run(args) or EXIT_OK


def _open(args: Namespace, *, create: bool = False) -> File:
    return File(args.tree, create, nthreads=args.nthreads)


# What the actions do


def _list(args: Namespace) -> int:
    tree = _open(args)
    blocks = []

    def show(name: str) -> None:
        column = tree.open(name)
        header = column._header
        fields: JsonObject = {
            "name": name,
            "dtype": header.dtype_name,
            "nmemb": header.nmemb,
            "size": header.size,
            "nfile": len(header.rows),
            "checksum": folded(sum(header.checksums) % MODULUS),
            "path": column._folder,
            "attributes": list(column.attrs),
        }
        blocks.append(fields)
        if args.long and not args.json:
            texts = "%-28s %s %d %12d %05d %d %s"
            keys = ("name", "dtype", "nmemb", "size", "checksum", "nfile", "path")
            console.say(texts % tuple(fields[key] for key in keys))
        elif not args.json:
            console.say(name)

    # A block whose header is damaged does not hide the others.
    code = for_each_file(args.names or tree.blocks, show)
    if args.json:
        say_json(blocks)
    return code


def _cat(args: Namespace) -> None:
    if args.offset < 0 or (args.count or 0) < 0:
        raise WrongUsage("bigfile cat: -o and -c must be >= 0")
    column = _open(args).open(args.names[0])
    start = min(args.offset, column.size)
    left = column.size - start
    stop = start + (left if args.count is None else min(args.count, left))
    row_nbytes = max(1, column.nbytes // max(1, column.size))
    step = max(1, (RAW_NBYTES if args.binary else TEXT_NBYTES) // row_nbytes)
    if args.binary:
        check_no_terminal(STREAM, args, "bytes")
    sys.stdout.flush()
    with shown(args.names[0], (stop - start) * row_nbytes, args.progress) as bar:

        def pieces() -> Iterator[Array]:
            for first in range(start, stop, step):
                rows = column.read(first, min(step, stop - first))
                yield rows
                if bar is not None:
                    bar(rows.nbytes)

        if args.json:
            say_json_list(_plain(rows) for rows in pieces())
            return
        show = _formatter(column, args.format)
        for rows in pieces():
            if args.binary:
                console.put_bytes(rows.tobytes())
                continue
            table = rows.reshape(len(rows), -1).tolist()
            text = "".join("%s \n" % " ".join(map(show, row)) for row in table)
            console.put(encodable(text, sys.stdout))


def _formatter(column: Column, given: str | None) -> Callable[[object], str]:
    if given is not None:
        return partial(_printed, _SIZED.sub(r"\1", given))
    kind = column.dtype.kind
    other = {"i": FORMATS["i8"], "u": FORMATS["i8"], "f": FORMATS["f8"]}.get(kind)
    show: Callable[[object], str] | None = FORMATS.get(column.dtype.str[1:], other)
    return show or (lambda value: printable(str(_plain(value))))


def _printed(text: str, value: object) -> str:
    """Return an item in a format of printf; a complex number is two numbers."""
    plain = _plain(value)
    plain = printable(plain) if isinstance(plain, str) else plain
    try:
        return text % (tuple(plain) if isinstance(plain, list) else (plain,))
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongUsage(
            "cat: the format '%s' can't show the item '%s': %s" % (text, value, error)
        ) from error


def _plain(value: Any) -> Any:
    """Return an item, or an array, as JSON can hold it."""
    if isinstance(value, numpy.ndarray):
        value = (value.astype(str) if value.dtype.kind in "mM" else value).tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, numpy.longdouble):
        return float(value)  # the nearest number that readers of JSON have
    return [value.real, value.imag] if isinstance(value, complex) else value


def _create(args: Namespace) -> None:
    name, *more = args.names
    dtype = more[0] if more else args.dtype
    row = None if dtype is None else _dtype(dtype, args.nmemb)
    tree = _open(args, create=True)
    _check_free(tree, name, args)
    if row is None:
        tree.create(name).close()
        return
    nfile = 1 if args.nfile is None else args.nfile
    if args.size is not None:
        tree.create(name, row, args.size, nfile).close()
        return
    with (
        opened_input([*more[1:], STREAM][0]) as fp,
        seekable_with_size(fp) as (items, nbytes),
        shown(name, nbytes, args.progress) as bar,
    ):
        _check_no_file_of(tree._tree.folder(tree._full(name)), fp)
        row_nbytes = max(1, row.itemsize)
        if nbytes % row_nbytes:
            raise WrongUsage(
                "%s can't be rows of %d bytes" % (counted(nbytes, "byte"), row_nbytes)
            )
        header = new_header(row, nbytes // row_nbytes, nfile)

        def fill(column: Column) -> None:
            for start in range(0, column.size, header.piece_rows):
                count = min(header.piece_rows, column.size - start)
                data = read_up_to(items, count * row_nbytes)
                if len(data) < count * row_nbytes:
                    raise StorageError("the input became shorter while it was read")
                column.write(start, numpy.frombuffer(data, row.base))
                if bar is not None:
                    bar(len(data))

        tree.create_filled(tree._full(name), header, fill).close()


def _dtype(name: str, nmemb: int | None = None) -> DType:
    """Return the type of an item, or of a row of `nmemb` items."""
    fault = "'%s' is no type of NumPy" % name
    try:
        dtype: DType = numpy.dtype(name)
        if nmemb is not None:
            fault = "--nmemb: a row can't have " + counted(nmemb, "item")
            dtype = numpy.dtype((dtype, (nmemb,)))
        return dtype
    except (TypeError, ValueError) as error:
        raise WrongUsage(fault) from error


def _check_no_file_of(folder: str, fp: BinaryIO) -> None:
    """Raise `WrongUsage` if an input is a file of a block, which will be emptied."""
    with suppress(FileNotFoundError, UnsupportedOperation):
        given = os.fstat(fp.fileno())
        with os.scandir(folder) as entries:
            for entry in entries:
                if os.path.samestat(given, entry.stat()):
                    raise WrongUsage(
                        "the input is the file '%s' of the block that is replaced: "
                        "copy it first" % entry.path
                    )


def _check_free(tree: File, name: str, args: Namespace) -> None:
    if name in tree and not args.force:
        raise Refusal(
            "'%s' has the block '%s' already; use --force to replace it"
            % (tree.basename, name)
        )


def _repartition(args: Namespace) -> int:
    first, *blocks = args.names
    tree = _open(args)
    if first.isdecimal():
        work = partial(_rewrite, args, tree, int(first))
        return for_each_file(blocks or tree.blocks, work)
    if len(blocks) != 2 or not blocks[1].isdecimal():
        raise WrongUsage("repartition: '%s' is not a number of files" % first)
    _copy_block(args, tree, first, blocks[0], int(blocks[1]))
    return EXIT_OK


def _rewrite(args: Namespace, tree: File, nfile: int, block: str) -> None:
    """Replace a block, in one step, by its copy in another number of files."""
    from ...dataset.commit_rules import building
    from ...dataset.conversion.bigfile_trees import is_only_tree

    old = tree.open(block)
    if not old.nmemb:
        return  # it has attributes only
    if not is_only_tree(old._folder):
        raise Refusal("'%s' has files that are no files of a block" % old._folder)
    verbose("writing '%s' to %s" % (block, counted(nfile, "file")))
    sync = args.sync is not False
    with (
        shown(block, old.nbytes, args.progress) as bar,
        building(old._folder, "w", sync, is_only_tree) as path,
    ):
        target, name = os.path.split(path)
        dtype = None if args.dtype is None else _dtype(args.dtype)
        new = File(target, nthreads=args.nthreads)
        copy(tree, block, new, name, Nfile=nfile, dtype=dtype, progress=bar).close()


def _copy(args: Namespace) -> None:
    if args.to is None and len(args.names) != 2:
        raise WrongUsage("copy: expected <block> <new block>, or --to")
    tree = _open(args)
    target = None if args.to is None else File(args.to, create=True)
    if args.names:
        block, new_block = args.names[0], args.names[-1]
        _copy_block(args, tree, block, new_block, args.nfile, target)
        return
    for block in tree.blocks:
        _copy_block(args, tree, block, block, args.nfile, target)
    for group in sorted({block.rpartition("/")[0] for block in tree.blocks} | {""}):
        name = group + "/." if group else "."
        if target is not None and len(tree.open(name).attrs):
            copy(tree, name, target)


def _copy_block(
    args: Namespace,
    tree: File,
    block: str,
    new_block: str,
    nfile: int | None,
    target: File | None = None,
) -> None:
    target = tree if target is None else target
    _check_free(target, new_block, args)
    dtype = None if args.dtype is None else _dtype(args.dtype)
    with shown(block, tree.open(block).nbytes, args.progress) as bar:
        copy(
            tree, block, target, new_block, Nfile=nfile, dtype=dtype, progress=bar
        ).close()


def _get_attr(args: Namespace) -> None:
    block, *names = args.names
    attrs = _open(args).open(block).attrs
    for name in names:
        if name not in attrs:
            raise Refusal("the block '%s' has no attribute '%s'" % (block, name))
    if args.json:
        say_json({name: _plain(attrs[name]) for name in names or attrs})
        return
    for name in names or attrs:
        attribute = attrs.raw(name)
        text = humane(attribute).decode("utf-8", "replace")
        if not names:
            fields = name, attribute.dtype_name, attribute.nmemb, text
            text = "%s %s %d [ %s ]" % fields
        console.say(text)


def _set_attr(args: Namespace) -> None:
    block, name, *texts = args.names
    attrs = _open(args).open(block).attrs
    kept = attrs.raw(name).dtype_name if name in attrs else None
    dtype = args.dtype or (kept if kept and kept[1:] != "a1" else None)
    values: list[object] = [_value(text) for text in texts]
    has_text = any(isinstance(value, str) for value in values)
    if dtype is None and (kept is not None or has_text):
        attrs[name] = texts[0] if len(texts) == 1 else texts
        return
    try:
        given = texts if numpy.dtype(dtype).kind in "SU" else values
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy 1, about 300 as u1
            items = numpy.array(given, dtype)
        is_held = _holds(items, given)
    except (TypeError, ValueError, OverflowError):
        is_held = False
    if not is_held:
        raise WrongUsage(
            "set-attr: the type '%s' of the attribute '%s' can't hold '%s'; "
            "-t sets another" % (dtype, name, " ".join(texts))
        )
    try:
        attrs[name] = items
    except (TypeError, ValueError) as error:
        raise WrongUsage("set-attr: %s" % error) from error


def _holds(items: Array, given: list[Any]) -> bool:
    """Return whether an array has the given values, with fewer digits perhaps.

    NumPy makes 1 of 1.5, 'ab' of 'abc', True of 'x', and an infinity of a large number
    without an error.
    """
    kind = items.dtype.kind
    if kind in "fc":
        finite = numpy.isfinite(numpy.array(given, "c16"))
        return numpy.array_equal(numpy.isfinite(items), finite)
    if kind == "S":
        given = [text.encode("ascii") for text in given]
    return kind not in "biuSU" or items.tolist() == given


def _value(text: str) -> object:
    """Return a number if the text is one, else the text."""
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _verify(args: Namespace) -> int:
    from .verify import counts, state_of, tell

    tree = _open(args)
    blocks = args.names or None
    with shown(args.tree, None, args.progress) as bar:
        report = verify(tree, blocks=blocks, nthreads=args.nthreads, progress=bar)
    code, state = state_of(report)
    if args.json:
        say_json(report.as_dict())
    elif not (args.quiet and report.ok):
        texts = printable(args.tree), state, counts(report, state)
        console.say("%s: %s (%s)" % texts)
        tell(report)
    return code


class Action(NamedTuple):
    """An action, what it does, its arguments behind the tree, and its `OPTIONS`."""

    run: Callable[[Namespace], int | None]
    help: str
    usage: str
    options: str = ""

    def accepts(self, count: int) -> bool:
        """Return whether the action takes this number of arguments."""
        least = self.usage.partition("[")[0].count("<")
        return least <= count and (
            count <= self.usage.count("<") or "..." in self.usage
        )


IN_PLACE = "<number of files> [<block> ...]"
NEW_COPY = "<block> <new block> <number of files>"
ITEMS = "<block> [<dtype> [<file of raw items>]]"
ACTIONS = {
    "ls": Action(_list, "list blocks", "[<block> ...]", "long json"),
    "cat": Action(
        _cat, "print rows of a block", "<block>", "binary format offset count json"
    ),
    "create": Action(_create, "create a block", ITEMS, "nfile dtype nmemb size"),
    "repartition": Action(
        _repartition, "change data files", "%s | %s" % (IN_PLACE, NEW_COPY), "dtype"
    ),
    "get-attr": Action(
        _get_attr, "print attributes", "<block> [<attribute> ...]", "json"
    ),
    "set-attr": Action(
        _set_attr, "set an attribute", "<block> <attribute> <value> ...", "dtype"
    ),
    "copy": Action(_copy, "copy blocks", "[<block> [<new block>]]", "nfile dtype to"),
    "verify": Action(_verify, "check all data", "[<block> ...]", "json"),
}
ARGUMENTS = "tree <tree>  the folder of the tree\nnames <name>  see above"
# The options of actions.
OPTIONS = {
    "long": "-l  show all fields",
    "binary": "-b -B  write raw items",
    "format": "-f <format>  format of an item for printf, like %%12.6f",
    "offset": "-o <n>  first row",
    "count": "-c <n>  number of rows",
    "nfile": "-n -N <n>  number of data files",
    "dtype": "-t <dtype>  type of the items, like f4 or <i8",
    "nmemb": "--nmemb <n>  items in a row",
    "size": "-s --size <n>  number of rows, without any data",
    "to": "--to <tree>  another tree",
    "json": "--json  print JSON, for programs",
}
PROPERTIES: dict[str, dict[str, object]] = {
    "names": {"nargs": "*", "default": []},
    "l": {"dest": "long"},
    "B": {"dest": "binary"},
    "f": {"dest": "format"},
    "o": {"dest": "offset", "type": int, "default": 0},
    "c": {"dest": "count", "type": int},
    "N": {"dest": "nfile", "type": int},
    "t": {"dest": "dtype"},
    "nmemb": {"type": int, "default": 1},
    "size": {"type": int},
}
