"""The reference of the command for Sphinx, made from the parser of the command line.

``.. blpk:: VERB`` stands for the synopsis and the options of a verb, ``.. blpk::
others`` for the help of each verb without a section, ``.. blpk:: verbs`` for the table
of verbs, and ``.. blpk::`` for the global options. So an option or a verb that is added
to the command is in the page without a change there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import manpage

from bloscpack._cli import args

VERBS = "verbs"
OTHERS = "others"
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli.rst")


def lines_for(name: str) -> Iterator[str]:
    """Yield the lines that stand for a directive."""
    parser = args.create_parser()
    if name == VERBS:
        yield from (".. list-table::", "   :header-rows: 1", "   :widths: 18 8 74", "")
        rows = [("verb", "", "what it does")]
        rows += [(verb.name, verb.letter or "", verb.help) for verb in args.VERBS]
        for row in rows:
            for i, cell in enumerate(row):
                yield "   %s - %s" % (" " if i else "*", _escaped(cell))
        return
    if not name:
        yield from _options(parser)
        return
    parsers = args.parsers_in(parser)
    if name == OTHERS:
        with open(PAGE, encoding="utf-8") as fp:
            placed = {"help", *re.findall(r"^\.\. blpk:: (\w+)$", fp.read(), re.M)}
        for verb in args.VERBS:
            if verb.name not in placed:
                yield from lines_for(verb.name)
                yield from _help(parsers[verb.name])
        return
    parser = parsers[name]
    verb = next(verb for verb in args.VERBS if verb.name == name)
    yield from (_escaped(verb.help[:1].upper() + verb.help[1:]) + ".", "")
    for each in [parser, *args.parsers_in(parser).values()]:
        yield from ("::", "", "    " + _usage(each), "")
        yield from _options(each)


def _usage(parser: args.Parser) -> str:
    """Return the synopsis on one line; one word stands for many options."""
    found = parser.format_usage() if parser.usage else parser._short_usage()
    return re.sub(r"\s+", " ", found.removeprefix("usage: ")).strip()


def _help(parser: args.Parser) -> Iterator[str]:
    """Yield the text of a help behind its first sentence, and the examples."""
    for text in manpage.expanded(parser.description, parser, None).split("\n\n")[1:]:
        yield from (_escaped(" ".join(text.split())), "")
    examples = manpage.expanded(parser.epilog, parser, None).splitlines()
    if examples:
        lines = ("   " + line for line in examples[1:])
        yield from (".. code-block:: text", "", *lines, "")


def _options(parser: args.Parser) -> Iterator[str]:
    """Yield a definition for each option."""
    for action in manpage.listed(parser):
        if not action.option_strings:
            continue
        names = ["``%s``" % name for name in action.option_strings]
        if action.nargs != 0:
            metavar = manpage.metavar(action)
            names[-1:] = [" ".join([*names[-1:], "*%s*" % _escaped(metavar)])]
        yield ", ".join(names)
        help_ = manpage.expanded(action.help, parser, action)
        yield "   " + _escaped(" ".join(help_.split())) or "   "
    yield ""


def _escaped(text: str) -> str:
    """Return text in which nothing is markup."""
    return re.sub(r"([\\*`|_<>])", r"\\\1", text)


def setup(app: object) -> dict[str, bool]:
    """Add the directive to Sphinx."""
    from docutils.nodes import container
    from docutils.statemachine import StringList
    from sphinx.util.docutils import SphinxDirective

    class Blpk(SphinxDirective):
        """Stands for what `lines_for` returns."""

        optional_arguments = 1

        def run(self) -> list[object]:
            """Return the nodes."""
            lines = StringList([*lines_for("".join(self.arguments))], "reference.py")
            found = container()
            self.state.nested_parse(lines, self.content_offset, found)
            return list(found.children)

    app.add_directive("blpk", Blpk)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
