"""The settings of Blosc: ours inside of the block, the application's after it."""

import os
import threading

import blosc
import pytest

from bloscpack._engine.blosc_settings import own_settings
from bloscpack._format.automatic import Setting
from bloscpack._format.blosc_header import decode_header
from bloscpack._format.chunks import compress, decompress
from bloscpack.args import BloscArgs


@pytest.fixture
def of_application():
    """Give Blosc settings that are not the defaults; check that they are restored."""
    before = blosc.set_nthreads(3)
    blosc.set_blocksize(4096)
    yield
    assert (3, 4096) == (blosc.set_nthreads(before), blosc.get_blocksize())
    blosc.set_blocksize(0)


def nthreads():
    """Return the number of threads that Blosc uses, without changing it."""
    found = blosc.set_nthreads(1)
    blosc.set_nthreads(found)
    return found


@pytest.mark.usefixtures("of_application")
def test_settings_inside():
    with own_settings, own_settings:
        assert (1, 0) == (nthreads(), blosc.get_blocksize())


@pytest.mark.usefixtures("of_application")
def test_threads_of_blosc_end_when_a_second_thread_enters():
    with own_settings:
        own_settings.use_threads_of_blosc(2)
        assert (True, 2) == (own_settings.disordered, nthreads())
        with own_settings:
            own_settings.use_threads_of_blosc(2)  # ignored: it is not alone
            assert 1 == nthreads()


@pytest.mark.usefixtures("of_application")
def test_block_size_ends_when_another_chunk_is_compressed_with_automatic_blocks():
    plain = bytes(2**22)
    with own_settings:
        own_settings.use_blocksize(0)
        assert 0 == blosc.get_blocksize()
        own_settings.use_blocksize(2**16)
        assert 2**16 == blosc.get_blocksize()
        with own_settings:  # decompressing ends nothing
            chunk = compress(plain, Setting("zstd", 5, 1, 8, 2**22, 2**16))
            assert 2**16 == decode_header(chunk).blocksize == blosc.get_blocksize()
            assert plain == decompress(chunk)
            assert 2**16 == blosc.get_blocksize()
            chunk = compress(plain, BloscArgs())
            assert 2**16 != decode_header(chunk).blocksize
            assert 0 == blosc.get_blocksize()


def test_block_size_is_automatic_again_outside():
    with own_settings:
        own_settings.use_blocksize(2**21)
    assert 0 == blosc.get_blocksize()


@pytest.mark.usefixtures("of_application")
def test_reset_within_a_block():
    with own_settings:
        own_settings._reset()
        assert (3, 4096) == (nthreads(), blosc.get_blocksize())
    with own_settings:
        assert 1 == nthreads()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_has_the_settings_of_the_application():
    blosc.set_blocksize(4096)
    entered, left = threading.Event(), threading.Event()

    def stay_inside():
        with own_settings:
            entered.set()
            left.wait(30)

    thread = threading.Thread(target=stay_inside)
    thread.start()
    try:
        assert entered.wait(30)
        child = os.fork()
        if child == 0:
            os._exit(blosc.get_blocksize() != 4096)
        assert 0 == os.waitpid(child, 0)[1]
    finally:
        left.set()
        thread.join()
        blosc.set_blocksize(0)
