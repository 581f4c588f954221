"""The formats of the metadata: JSON, spelled as every release spelled it."""

import json
import math
import sys

import pytest

from bloscpack import constants, serializers
from bloscpack.exceptions import FormatError, NoSuchSerializer, UsageError

JSON = serializers.SERIALIZERS_LOOKUP[b"JSON"]


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ("[]", []),
        ("0", 0),
        ('""', ""),
        ("false", False),
        ("null", None),
        ('{"b":[1,2.5,null,true]}', {"b": [1, 2.5, None, True]}),
        ('{"b":1,"a":2}', {"b": 1, "a": 2}),
        ('"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("Infinity", math.inf),
    ],
)
def test_json(text, value):
    assert text == JSON.dumps(value)
    assert value == JSON.loads(text)
    assert value == JSON.loads(text.encode())


@pytest.mark.parametrize(
    ("text", "value"), [("[1,2]", (1, 2)), ('{"1":2}', {1: 2}), ("NaN", math.nan)]
)
def test_json_of_values_that_change(text, value):
    assert text == JSON.dumps(value)


def test_json_reads_other_spellings():
    assert {"é": 1} == JSON.loads(' { "é" : 1 } '.encode())
    assert math.isnan(JSON.loads(b"NaN"))


@pytest.mark.parametrize("value", [object, b"bytes", {(1, 2): 3}, nested(10**5)])
def test_what_json_can_not_hold(value):
    with pytest.raises(UsageError, match="the metadata can't be written as JSON: "):
        JSON.dumps(value)


@pytest.mark.parametrize("value", [object(), {"a": {1}}, [b""], {(1, 2): 3}])
def test_type_that_json_does_not_have(value):
    with pytest.raises(TypeError, match="the metadata can't be written as JSON: "):
        JSON.dumps(value)


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")
    value = {"a": numpy.int64(-1), "b": [numpy.uint8(255), numpy.float64(0.5)]}
    assert '{"a":-1,"b":[255,0.5]}' == JSON.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "1": "b"},
        [{"a": ({None: 1, "null": 2},)}],
        {True: 1, "true": 2},
        {1.5: 1, "x": 0, "1.5": 2},
    ],
)
def test_keys_with_the_same_name(value):
    """No item is lost without an error."""
    with pytest.raises(UsageError, match=r"the keys .* and .* have the same name"):
        JSON.dumps(value)


def test_keys_that_are_no_text():
    assert '{"1":2,"null":3,"false":4}' == JSON.dumps({1: 2, None: 3, False: 4})


def test_circular_value():
    value = []
    value.append(value)
    with pytest.raises(UsageError, match="Circular reference detected"):
        JSON.dumps(value)


@pytest.mark.parametrize(
    "text", [b"", b"[1", b"\xff", b"{'a': 1}", b"{} {}", b"[" * 10**5, b"1" * 10**5]
)
def test_what_is_no_json(text):
    with pytest.raises(FormatError, match="the metadata are no valid JSON: ") as raised:
        JSON.loads(text)
    assert "metadata" == raised.value.section


def test_registry():
    assert [b"JSON"] == serializers.SERIALIZERS_AVAIL
    assert [b"JSON"] == [serializer.name for serializer in serializers.SERIALIZERS]
    assert "<Serializer JSON>" == repr(JSON)


def test_check_valid_serializer():
    assert serializers.check_valid_serializer(b"JSON") is None


@pytest.mark.parametrize(
    ("shown", "name"),
    [("BSON", b"BSON"), ("JSON", "JSON"), ("JSON    ", b"JSON    "), ("ÿ", b"\xff")],
)
def test_check_valid_serializer_refuses(shown, name):
    with pytest.raises(NoSuchSerializer) as raised:
        serializers.check_valid_serializer(name)
    assert "serializer '%s' does not exist" % shown == str(raised.value)
    assert isinstance(raised.value, ValueError)


def test_what_could_not_be_read_is_not_written():
    deep = []
    for _ in range(constants.MAX_METADATA_NESTING - 1):
        deep = [deep]
    assert deep == JSON.loads(JSON.dumps(deep))
    with pytest.raises(UsageError, match="nested more than '100' levels deep"):
        JSON.dumps([deep])


@pytest.mark.parametrize("middle", ["", "1", "1,[]", '"[{"'])
def test_only_arrays_and_objects_are_levels(middle):
    depth = constants.MAX_METADATA_NESTING - (middle == "1,[]")
    text = "[" * depth + middle + "]" * depth
    value = JSON.loads(text)
    assert value == JSON.loads(JSON.dumps(value))
    with pytest.raises(FormatError, match="nested more than '100' levels deep"):
        JSON.loads("[[],%s]" % text)


@pytest.mark.skipif(
    not hasattr(sys, "set_int_max_str_digits"), reason="this Python has no limit"
)
@pytest.mark.parametrize("sign", ["", "-"])
def test_digits_of_whole_numbers(sign):
    """The limit does not depend on the limit that a program has set in Python."""
    old = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        longest = sign + "1" * 4300
        assert int(longest) == JSON.loads(longest)
        with pytest.raises(FormatError, match="a number has more than '4300' digits"):
            JSON.loads("[%s1]" % longest)
    finally:
        sys.set_int_max_str_digits(old)
    # Digits of a fraction, of an exponent's number, and in a string do not count.
    assert 0.1111 < JSON.loads("0." + "1" * 5000) < 0.1112
    assert "1" * 5000 == JSON.loads('"%s"' % ("1" * 5000))


# The number of values


# Text, and an upper bound of its values and keys: empty lists and objects count twice.
COUNTED = [
    ("0", 1),
    ('"a,b:[{c"', 1),
    ("[]", 2),
    ("{}", 2),
    ("[1,2,3]", 4),
    ('{"a":1,"b":2}', 5),
    ('{"a":{"b":[1,[],{}]}}', 10),
    (r'["a\",b","\\",","]', 4),
    (r'["\\\"",",,,,"]', 3),
    ('[",,,",[",,,"]]', 4),
    ('[ "a" , "b" ]', 3),
]


def number_of_values(value):
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(number_of_values, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(number_of_values, value))
    return 1


@pytest.mark.parametrize(("text", "count"), COUNTED)
def test_number_of_values(text, count):
    assert count >= number_of_values(JSON.loads(text))
    assert JSON.loads(text) == JSON.loads(text, count)
    assert JSON.loads(text) == JSON.loads(text.encode(), count)
    with pytest.raises(FormatError, match="have more than '%d' values" % (count - 1)):
        JSON.loads(text, count - 1)


@pytest.mark.parametrize("text", ['"a,', '["a,b', '"a""b,c"', '[[["', '"\\'])
def test_number_of_values_in_no_json(text):
    for limit in range(10):
        with pytest.raises(FormatError):
            JSON.loads(text, limit)


@pytest.mark.parametrize("text", [b'"' * 10**6, b'"",' * 10**6, b'\\"' * 10**6])
def test_counting_ends_soon(text):
    with pytest.raises(FormatError):
        JSON.loads(text, 1000)


class Name(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"a": {}, "b": [], "c": [[], {}]},
        {"a": [1, 2.5, True, None, 1e300, 10**30, -0.0], 'b\n"': "\u20ac\ud800\x00"},
        [float("nan"), float("inf"), -float("inf")],
        {Name("a"): Name("b"), "c": (1, (), (2,))},
        {1: 2, None: 3, False: 4, 2.5: 5},
        {"a": {"b": {3: 4}}},
        "text",
        {"a": {1, 2}},  # what `default` turns into JSON
        {"a": [{3}]},
    ],
    ids=repr,
)
def test_json_in_lines_is_that_of_python(value):
    expected = json.dumps(value, indent=2, default=list)
    assert expected == serializers.json_in_lines(value, list)


def test_json_in_lines_has_the_errors_of_python():
    circle: list = []
    circle.append(circle)
    for value in circle, {"a": object()}, {(1, 2): 3}:
        with pytest.raises((ValueError, TypeError)) as expected:
            json.dumps(value, indent=2)
        with pytest.raises(expected.type) as raised:
            serializers.json_in_lines(value)
        assert str(expected.value) == str(raised.value)
