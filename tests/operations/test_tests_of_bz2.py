"""Python's own tests of `bz2.BZ2File` and `bz2.open`, run with `BloscpackFile`.

The module ``test.test_bz2`` of this interpreter is loaded a second time, with the names
of bz2 replaced. Each excluded test has its reason.
"""

from __future__ import annotations

import importlib.util
import types
import unittest

import pytest

import bloscpack as bp

STREAMS = "a bz2 file may consist of several streams, a Bloscpack file has one"
FILENO = "fileno() raises: the descriptor has the compressed bytes"
BZ2_DATA = "the compressed bytes in the test are those of bz2"
EXCLUDED = {
    "testReadMultiStream": STREAMS,
    "testReadMonkeyMultiStream": STREAMS,
    "testReadMultiStreamTrailingJunk": STREAMS,
    "testReadChunk10MultiStream": STREAMS,
    "testReadLineMultiStream": STREAMS,
    "testReadLinesMultiStream": STREAMS,
    "testIteratorMultiStream": STREAMS,
    "testSeekForwardAcrossStreams": STREAMS,
    "testSeekBackwardsAcrossStreams": STREAMS,
    "testSeekBackwardsFromEndAcrossStreams": STREAMS,
    "testSeekPostEndMultiStream": STREAMS,
    "testSeekPostEndTwiceMultiStream": STREAMS,
    "testSeekPreStartMultiStream": STREAMS,
    "testFileno": FILENO,
    "testOpenFilename": FILENO,
    "testOpenFileWithName": FILENO,
    "testOpenFileWithIntName": FILENO,
    "testReadlinesNoNewline": BZ2_DATA,
    "test_read_truncated": "bz2 files end with a marker that no data depend on",
    "testDecompressLimited": "a chunk is decompressed as a whole",
}


def load():
    """Return the test cases over `BloscpackFile`, or the reason why there are none."""
    try:
        spec = importlib.util.find_spec("test.test_bz2")
        if spec is None:
            return [], "this Python has no module test.test_bz2"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, unittest.SkipTest) as error:
        return [], "the tests of bz2 can't be imported: %s" % error
    module.BZ2File = bp.BloscpackFile
    module.bz2 = types.SimpleNamespace(
        BZ2File=bp.BloscpackFile,
        open=bp.open,
        compress=lambda data, compresslevel: bp.pack_bytes_to_bytes(
            data, clevel=compresslevel
        ),
    )
    module.ext_decompress = lambda data: bp.unpack_bytes_from_bytes(data)[0]
    module.BaseTest.DATA = bp.pack_bytes_to_bytes(module.BaseTest.TEXT)
    return [module.BZ2FileTest, module.OpenTest], None


CLASSES, REASON = load()


def cases():
    for kind in CLASSES:
        for name in unittest.defaultTestLoader.getTestCaseNames(kind):
            marks = ()
            if name in EXCLUDED:
                marks = pytest.mark.skip(reason=EXCLUDED[name])
            yield pytest.param(kind, name, marks=marks, id=name)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize(("kind", "name"), list(cases()))
def test_of_python(kind, name):
    result = unittest.TestResult()
    kind(name).run(result)
    assert [] == [text for _, text in result.failures + result.errors]
    assert 1 == result.testsRun
