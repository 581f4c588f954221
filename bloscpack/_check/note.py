"""The note that `recover` leaves in the metadata of a new file or dataset.

It says which bytes, rows or chunks of the damaged one are lost (docs/damage.rst, The
note of a recovery). The same damaged bytes give the same note.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._types import Json, JsonObject
from .findings import Pair

# Key of the note.
KEY = "bloscpack_recovered"
# Key of the notes of earlier recoveries, in a note: a list, the latest one first.
EARLIER = "earlier"
# Maximum number of ranges in a note, and of those that are shown.
RANGES_KEPT = 1000
RANGES_SHOWN = 8


def with_note(
    metadata: JsonObject | None,
    unit: str,
    filled: Sequence[Pair],
    left_out: Sequence[Pair],
    fill: int | None,
    *,
    certain: bool,
    lost: bool,
    value: str = "",
) -> JsonObject:
    """Return the metadata of a recovered file or dataset with the note of its losses.

    `filled` and `left_out` are ranges of the `unit`. `fill` is the byte in place of
    those that are filled, None for the fill value of the array, which is `value`.
    `certain` is `Recovery.certain`. `lost` says that the metadata are lost themselves.
    """
    old = metadata or {}
    room = max(0, RANGES_KEPT - len(filled))
    note: JsonObject = {
        "unit": unit,
        "filled": [[*pair] for pair in filled[:RANGES_KEPT]],
        "left_out": [[*pair] for pair in left_out[:room]],
        "fill": fill,
        "certain": certain,
        "metadata_lost": lost,
    }
    if filled and value and fill is None:
        note["value"] = value
    more = len(filled) + len(left_out) - RANGES_KEPT
    if more > 0:
        note["more"] = more
    earlier = _notes_in(old.get(KEY))
    if earlier:
        note[EARLIER] = earlier
    return {**old, KEY: note}


def _notes_in(value: Json) -> list[Json]:
    """Return an old note without its earlier ones, and then those.

    A value with parts that no note has is left out: metadata must not be nested deep.
    """
    note = dict(value) if isinstance(value, dict) else {}
    earlier = note.pop(EARLIER, [])
    notes = [note, *(earlier if isinstance(earlier, list) else [])]
    return [
        note
        for note in notes
        if isinstance(note, dict) and note and all(map(_is_part, note.values()))
    ]


def _is_part(value: Json) -> bool:
    """Return whether a value is plain, or a list of ranges."""
    return not isinstance(value, (dict, list)) or (
        isinstance(value, list) and all(map(_is_range, value))
    )


def told(metadata: Json) -> str:
    """Return the note in metadata as a sentence; '' if there is none.

    The metadata may have any content.
    """
    if not isinstance(metadata, dict) or KEY not in metadata:
        return ""
    note = metadata[KEY] if isinstance(metadata[KEY], dict) else {}
    fill = note.get("fill")
    fill_value = "%.40s" % note.get("value", "the fill value")
    value = fill_value if fill is None else "bytes %.9r" % fill
    losses = ("filled", "are filled with " + value), ("left_out", "are left out")
    parts = [
        "%.9s %s %s" % (note.get("unit"), ", ".join(ranges), what)
        for key, what in losses
        if (ranges := _ranges(note.get(key)))
    ]
    if note.get("more"):
        parts.append("and more")
    if note.get("metadata_lost"):
        parts.append("metadata are lost")
    if not note.get("certain"):
        parts.append("the numbers of chunks are not certain")
    if EARLIER in note:
        parts.append("and an earlier recovery has a note")
    return "recovered from damage: %s" % "; ".join(parts)


def _ranges(value: Json) -> list[str]:
    """Return the first ranges in words; none for a value that is no list of them."""
    ranges = value if isinstance(value, list) else []
    texts = ["%d to %d" % tuple(p) for p in ranges[:RANGES_SHOWN] if _is_range(p)]
    return texts + ["..."] * (len(ranges) > RANGES_SHOWN)


def _is_range(value: Json) -> bool:
    """Return whether a value is two numbers of bytes, rows or chunks."""
    return (
        isinstance(value, list)
        and [*map(type, value)] == [int, int]
        and all(-(2**63) <= number < 2**63 for number in value)
    )
