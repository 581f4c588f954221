"""The literals of dtypes: the grammar of docs/format.rst, and both readers."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from format import independent_reader

from bloscpack._format.dtypes import decode_dtype
from bloscpack.exceptions import DamageError

PAGE = Path(__file__).parents[2] / "docs" / "format.rst"
STRINGS = ["'a'", "u'b'", 'U"c"', "'\\xe9'", '"\\u20ac\\\\"', "''", "'it\"s'"]
SIMPLE = ["'<i4'", "u'|S3'", '"<M8[25us]"', "'\\x3cU2'", "'|V0'", "'|b1'"]
LEAVES = {"string": STRINGS, "simple": SIMPLE, "number": ["0", "1", "2L", "3"]}
NO_TYPES = ["'i4'", "'float'", "'|U2'"]
# What each leaf of the grammar may be; any string is a name.
KNOWN = {**LEAVES, "string": [*STRINGS, *SIMPLE, *NO_TYPES]}
OTHERS = [*NO_TYPES, "{", "}", "None", "True", "-1", "1.0", "07", "''''", r"'\N'"]
BLANKS = ["", "", "", " ", "\t", "\n", "\r\n", "\f"]


def grammar() -> dict[str, object]:
    """Return the rules of structures: alternatives of sequences."""
    block = PAGE.read_text("utf-8").partition(":name: dtype-grammar\n\n")[2]
    rules = {}
    for line in block.partition("\n    number ")[0].splitlines():
        name, _, text = line.partition("=")
        found = text.split()
        # Brackets fit together: each rule with them has two forms.
        forms = [text]
        if "open" in found:
            pairs = ('"("', '")"'), ('"["', '"]"')
            forms = [text.replace("open", a).replace("close", b) for a, b in pairs]
        rules[name.strip()] = [
            parsed
            for form in forms
            for parsed in alternatives(re.findall(r'"."|\S+', form))
        ]
    return rules


def alternatives(tokens: list[str], end: str = "") -> list[list[object]]:
    """Return the alternatives up to a bracket: `[ ]` may be left out, `{ }` repeat."""
    found: list[list[object]] = [[]]
    while tokens and tokens[0] != end:
        token = tokens.pop(0)
        if token == "|":
            found.append([])
        elif token in "[{":
            inner = alternatives(tokens, {"[": "]", "{": "}"}[token])
            found[-1].append((token, inner))
        else:
            found[-1].append(token)
    if end:
        tokens.pop(0)
    return found


RULES = grammar()


def derived(symbol: object, rng: random.Random, depth: int = 0) -> list[str]:
    """Return the tokens of a text that a symbol stands for."""
    if isinstance(symbol, tuple):
        kind, inner = symbol
        count = rng.randrange(2 if kind == "[" else 3) if depth < 9 else 0
        parts = [part for _ in range(count) for part in rng.choice(inner)]
    elif symbol[0] == '"':
        return [symbol[1]]
    elif symbol in LEAVES:
        found = [rng.choice(LEAVES[symbol])]
        return ["(", *found, ")"] if rng.random() < 0.1 else found
    else:
        forms = RULES[symbol][: 1 if depth > 6 else None]
        parts = rng.choice(forms)
        if rng.random() < 0.1:
            parts = ['"("', *parts, '")"']
    return [token for part in parts for token in derived(part, rng, depth + 1)]


def ends(symbol: object, tokens: list[str], at: int) -> set[int]:
    """Return where texts that a symbol stands for end, which begin at a token."""
    if isinstance(symbol, tuple):
        kind, inner = symbol
        found, new = {at}, {at}
        while new:
            new = {e for s in new for form in inner for e in behind(form, tokens, s)}
            new -= found
            found |= new
            if kind == "[":
                break
        return found
    if symbol[0] == '"':
        return {at + 1} if tokens[at : at + 1] == [symbol[1]] else set()
    if symbol in LEAVES:
        is_there = at < len(tokens) and tokens[at] in KNOWN[symbol]
        found = {at + 1} if is_there else set()
    else:
        found = {e for form in RULES[symbol] for e in behind(form, tokens, at)}
    if tokens[at : at + 1] == ["("]:
        inner = ends(symbol, tokens, at + 1)
        found |= {end + 1 for end in inner if tokens[end : end + 1] == [")"]}
    return found


def behind(form: list[object], tokens: list[str], at: int) -> set[int]:
    found = {at}
    for symbol in form:
        found = {end for start in found for end in ends(symbol, tokens, start)}
    return found


def outcomes(tokens: list[str], rng: random.Random) -> tuple[str, object, object]:
    """Return a text of tokens, and what both readers make of it."""
    text = "".join(rng.choice(BLANKS) + token for token in tokens)
    text += rng.choice(BLANKS)
    description = {"container": "numpy", "shape": [1], "dtype": text}
    found: list[object] = []
    try:
        dtype = decode_dtype(text)
        found.append((dtype.itemsize, dtype.names is None))
    except DamageError:
        found.append(None)
    try:
        tree, size, *_ = independent_reader.describe(description)
        found.append((size, isinstance(tree, str)))
    except independent_reader.Refused as error:
        found.append(error.args[0])
    return text, *found


@pytest.mark.parametrize("seed", range(10))
def test_what_the_grammar_derives_is_read(seed):
    rng = random.Random(seed)
    for _ in range(200):
        tokens = derived("literal", rng)
        assert len(tokens) in ends("literal", tokens, 0)
        text, found, other = outcomes(tokens, rng)
        # Other rules are about a single field, equal names, and sizes.
        expected = None if other in ("A2", "A15", "A17") else other
        assert expected == found, text


@pytest.mark.parametrize("seed", range(10))
def test_what_the_grammar_does_not_derive_is_refused(seed):
    rng = random.Random(seed)
    count = 0
    for _ in range(400):
        tokens = derived("literal", rng)
        at = rng.randrange(len(tokens))
        every = [*LEAVES["simple"], *STRINGS, *LEAVES["number"], *"[](),", *OTHERS]
        tokens[at : at + rng.randrange(2)] = rng.sample(every, rng.randrange(2))
        if not tokens or len(tokens) in ends("literal", tokens, 0):
            continue
        count += 1
        text, found, other = outcomes(tokens, rng)
        assert found is None, text
        assert isinstance(other, str), text
    assert count > 100
