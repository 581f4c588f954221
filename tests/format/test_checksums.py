"""The checksums: their numbers, their sizes and what they yield."""

import pytest
from format import independent_reader

from bloscpack import checksums
from bloscpack.exceptions import NoSuchChecksum, UsageError

# In the order of the numbers on disk: name, size, digest of b"blosc" in hex.
DIGESTS = [
    ("None", 0, ""),
    ("adler32", 4, "14023506"),
    ("crc32", 4, "410d02c7"),
    ("md5", 16, "5ebd75451b99f85f2c10fddd2dcc1570"),
    ("sha1", 20, "2232b22bf948232d7f95373a85375de40a574b3b"),
    ("sha224", 28, "cc6af3aac7329b08628486ded5e9c1ded199141124b56396a0c59c37"),
    (
        "sha256",
        32,
        "fbf9ba918f12ba17c968456b146dae729fe7dda2f86f61a55aaaa22f87304446",
    ),
    (
        "sha384",
        48,
        (
            "6bf4797b4ec2f711ffc2d0c2350bd8721466c72471977df941ad58bdec5f3d54"
            "29670ba50a51aca0ae4cccdf71e4f520"
        ),
    ),
    (
        "sha512",
        64,
        (
            "5bb2bfdd4ba8e83a2f08f8b93357ba41d8b328c92e7ce23264ad5353e3a4836b"
            "484f43446b7b1119d1943f75121ecd1e60548e3f51acfe4d2a61c2ccf5c1991c"
        ),
    ),
    ("crc32c", 4, "0452e47b"),
]


@pytest.mark.parametrize(("name", "size", "digest"), DIGESTS)
def test_digests(name, size, digest):
    checksum = checksums.CHECKSUMS_LOOKUP[name]
    assert bytes.fromhex(digest) == checksum(b"blosc")
    assert bytes.fromhex(digest) == checksum(memoryview(b"blosc"))
    assert bytes.fromhex(digest) == checksum(bytearray(b"blosc"))
    assert size == checksum.size == len(checksum(b""))
    assert name == checksum.name
    assert "<Hash %s>" % name == repr(checksum)


def test_numbers_on_disk():
    names = [name for name, _, _ in DIGESTS]
    assert names == checksums.CHECKSUM_NAMES, "DIGESTS needs a line for each"
    assert names == [checksum.name for checksum in checksums.ALL_CHECKSUMS]
    assert names == list(checksums.CHECKSUMS_LOOKUP)


def test_the_independent_reader_has_the_same():
    known = len(independent_reader.CHECKSUMS)
    assert len(DIGESTS) == known, "independent_reader.CHECKSUMS needs an entry for each"
    found = [independent_reader.digest_of(i, b"blosc").hex() for i in range(known)]
    assert [digest for _, _, digest in DIGESTS] == found


def test_makers_of_hashes():
    import hashlib
    import zlib

    md5 = checksums.Hash("md5", *checksums.hashlib_hash(hashlib.md5))
    crc32 = checksums.Hash("crc32", *checksums.zlib_hash(zlib.crc32))
    assert 16 == md5.size
    assert hashlib.md5(b"blosc").digest() == md5(b"blosc")
    assert 4 == crc32.size
    assert bytes.fromhex("410d02c7") == crc32(b"blosc")


def test_zlib_hash_takes_signed_numbers():
    size, function = checksums.zlib_hash(lambda data: -2)
    assert b"\xfe\xff\xff\xff" == function(b"")
    assert 4 == size


@pytest.mark.parametrize("name", checksums.CHECKSUM_NAMES)
def test_check_valid_checksum(name):
    assert checksums.check_valid_checksum(name) is None


@pytest.mark.parametrize("name", ["crc64", "ADLER32", "", -1, None])
def test_check_valid_checksum_refuses(name):
    with pytest.raises(NoSuchChecksum) as raised:
        checksums.check_valid_checksum(name)
    assert "checksum '%s' does not exist" % name == str(raised.value)
    assert isinstance(raised.value, UsageError)
    assert isinstance(raised.value, ValueError)
