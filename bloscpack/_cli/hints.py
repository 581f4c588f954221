"""What a user may have meant by words and options that ``blpk`` lacks."""

from __future__ import annotations

import os

from ..constants import EXTENSION
from . import verb_table

# The smallest likeness, 0 to 1, of two verbs to suggest for a word of a few letters:
# that of one letter to a word of four letters with it.
ALIKE = 0.4
LETTERS = 2
# What to use for words that are no verbs: an option, or a verb with an option.
ANSWERS = {"version": "--version", "map": "info --chunks"}
# Options of gzip, xz and zstd.
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


def suggestions(word: str, *, plain: bool) -> list[str]:
    """Return the verbs, options or commands that a person may have meant.

    The word is no verb. `plain` says that a person may have asked to decompress.
    """
    if word in ANSWERS:
        return [ANSWERS[word]]
    for verb in verb_table.VERBS:
        if word in verb.other_names:
            return [verb.name]
    if _is_file(word):
        from shlex import quote

        name = "decompress" if plain or word.endswith(EXTENSION) else "compress"
        option = "-r " if os.path.isdir(word) else ""
        return ["blpk %s %s%s" % (name, option, quote(word))]
    from difflib import get_close_matches

    lower = word.lower()
    if len(word) <= LETTERS:
        return get_close_matches(lower, verb_table.names(), 2, ALIKE)
    return get_close_matches(lower, verb_table.names(), 1)


def _is_file(word: str) -> bool:
    """Return whether a word is the name of a file, or looks like one."""
    return "." in word or "/" in word or os.path.exists(word)
