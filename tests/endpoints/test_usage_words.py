"""Errors about arguments of the wrong type say what to do."""

import numpy
import pytest

import bloscpack as bp
from bloscpack.exceptions import UsageTypeError


@pytest.mark.parametrize(
    "pack", [bp.pack_bytes_to_bytes, lambda text: bp.pack_bytes_to_file(text, "x.blp")]
)
def test_text_is_not_bytes(pack):
    with pytest.raises(UsageTypeError, match="not 'str': encode the text first"):
        pack("abc")
    with pytest.raises(UsageTypeError, match="another buffer, not 'int'"):
        pack(1)


def test_append_of_an_array_has_its_own_check():
    with pytest.raises(UsageTypeError, match="omit 'accept'"):
        bp.append_ndarray_to_file(numpy.zeros(1), "x.blp", accept=print)
