"""Advice for options of gzip, xz and zstd that ``blpk`` lacks."""

from __future__ import annotations

from . import verb_table

TO_OUTPUT = ("-dc", "-cd", "--stdout", "--to-stdout")
HABITS = (*TO_OUTPUT, "--decompress", "--uncompress")


def advice(arguments: list[str]) -> tuple[str, str] | None:
    """Return a message and a hint; None if no option is one of gzip.

    Verbs have their own options. ``-dc`` before a codec is ``-d -c``.
    """
    from shlex import quote

    from ..constants import CNAME_AVAIL

    found = [word for word in arguments if word in HABITS]
    if not found or any(verb_table.find(word) for word in arguments):
        return None
    option = found[0]
    behind = arguments[arguments.index(option) + 1 :]
    if option == "-dc" and behind[:1] and behind[0] in CNAME_AVAIL:
        return None
    names = [quote(word) for word in arguments if not word.startswith("-")]
    name = names[0] if names else "FILE"
    verb = "cat" if option in TO_OUTPUT else "decompress"
    hint = "Did you mean 'blpk %s %s'?" % (verb, name)
    if not names:
        hint += " Standard input is decompressed by 'blpk -d < FILE > OUT'."
    return "'%s' is an option of gzip, not of blpk" % option, hint
