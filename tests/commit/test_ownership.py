"""Who may read a new file: group, permission bits, ACL and attributes."""

import json
import os
import struct
import sys

import numpy
import pytest
from support import as_user, needs_root

import bloscpack
from bloscpack._commit.ownership import ACL, FileAccess, may_read
from bloscpack._commit.replacing import replacing
from bloscpack.append import append, rewrite_metadata
from bloscpack.cli import main
from bloscpack.exceptions import StorageError
from bloscpack.npy_io import pack_npy_to_file, unpack_npy_from_file
from bloscpack.recover import recover

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions"),
    pytest.mark.usefixtures("usual_umask"),
]
USER, GROUP, OTHER_GROUP = 12345, 12345, 54321
STRANGER, MEMBER = 23456, 34567
# Tags of the entries of an ACL.
OWNER, NAMED_USER, OWNING_GROUP, MASK, OTHERS = 1, 2, 4, 16, 32
NOBODY_NAMED = 2**32 - 1
# Metadata for which a file has no room.
LONG = {"a": list(range(999))}


@pytest.fixture
def shared(open_folder):
    """Return a folder that all users can write to."""
    open_folder.chmod(0o777)
    return open_folder


def acl(group=4, named=4, mask=4, others=0):
    """Return the ACL that gives user 1 the bits `named`."""
    entries = [
        (OWNER, 6, NOBODY_NAMED),
        (NAMED_USER, named, 1),
        (OWNING_GROUP, group, NOBODY_NAMED),
        (MASK, mask, NOBODY_NAMED),
        (OTHERS, others, NOBODY_NAMED),
    ]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


def acl_of(path):
    return FileAccess(str(path)).acl


def mode_of(path):
    return oct(path.stat().st_mode & 0o7777)


def set_attribute(path, name, value):
    """Set an extended attribute; skip the test if the file system has none."""
    if not hasattr(os, "setxattr"):
        pytest.skip("the system has no extended attributes")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip("the file system does not take %s: %s" % (name, error))


# Every way to make a file from another


@pytest.fixture
def inputs(tmp_path):
    """Return the input of each kind."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    paths = {kind: folder / kind for kind in ("plain", "x.blp", "npy", "array.blp")}
    paths["plain"].write_bytes(b"plain bytes")
    with open(paths["npy"], "wb") as fp:
        numpy.save(fp, numpy.arange(10))
    bloscpack.pack_bytes_to_file(b"plain bytes", paths["x.blp"], metadata={"a": 1})
    pack_npy_to_file(paths["npy"], paths["array.blp"])
    return paths


def command(*arguments):
    def act(source, target, *options):
        main(
            [
                *options,
                *[str({"in": source, "out": target}.get(a, a)) for a in arguments],
            ]
        )

    return act


def metadata_to(source, target, *options):
    plain = target.parent / "plain"
    main([*options, "d", "-e", str(source), str(plain), "--metadata-to", str(target)])
    plain.unlink()


LIKE_INPUT = {
    "compress": ("plain", command("c", "--output", "out", "in")),
    "compress npy": ("npy", command("c", "--npy", "--output", "out", "in")),
    "decompress": ("x.blp", command("d", "-e", "in", "out")),
    "decompress npy": ("array.blp", command("d", "-e", "--npy", "in", "out")),
    "recover": ("x.blp", command("recover", "in", "out")),
    "metadata-to": ("x.blp", metadata_to),
    "recover()": ("x.blp", recover),
    "pack_npy_to_file": (
        "npy",
        lambda source, target: pack_npy_to_file(source, target, preserve=True),
    ),
    "unpack_npy_from_file": (
        "array.blp",
        lambda source, target: unpack_npy_from_file(source, target, preserve=True),
    ),
}
LIMITED = {
    "no-preserve": ("plain", command("c", "--no-preserve", "--output", "out", "in")),
    "decompress": ("x.blp", command("d", "-e", "--no-preserve", "in", "out")),
    "pack_file_to_file": ("plain", bloscpack.pack_file_to_file),
    "unpack_file_from_file": ("x.blp", bloscpack.unpack_file_from_file),
    "pack_npy_to_file": ("npy", pack_npy_to_file),
    "unpack_npy_from_file": ("array.blp", unpack_npy_from_file),
}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o444, 0o755, 0o664])
@pytest.mark.parametrize("way", LIKE_INPUT)
def test_new_file_like_its_input(inputs, tmp_path, way, mode):
    kind, make = LIKE_INPUT[way]
    inputs[kind].chmod(mode | 0o6000)
    make(inputs[kind], tmp_path / "out")
    assert oct(mode) == mode_of(tmp_path / "out")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o600, 0o600),
        (0o640, 0o640),
        (0o644, 0o644),
        (0o444, 0o644),
        (0o664, 0o644),
        (0o604, 0o604),
        (0o622, 0o600),
    ],
)
@pytest.mark.parametrize("way", LIMITED)
def test_new_file_is_not_open_to_those_who_can_not_read_its_input(
    inputs, tmp_path, way, mode, expected
):
    kind, make = LIMITED[way]
    inputs[kind].chmod(mode)
    make(inputs[kind], tmp_path / "out")
    assert oct(expected) == mode_of(tmp_path / "out")


@pytest.mark.parametrize(
    ("mode", "replaced", "expected"),
    [
        (0o644, 0o600, 0o600),
        (0o644, 0o640, 0o640),
        (0o644, 0o664, 0o664),
        (0o644, 0o4755, 0o755),
        (0o600, 0o644, 0o600),
        (0o640, 0o644, 0o640),
        (0o640, 0o666, 0o660),
    ],
)
@pytest.mark.parametrize("way", [*LIKE_INPUT, *LIMITED])
def test_replaced_file(inputs, tmp_path, way, mode, replaced, expected):
    """It keeps its access, but its new readers are readers of the input."""
    kind, make = {**LIMITED, **LIKE_INPUT}[way]
    inputs[kind].chmod(mode)
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "out").chmod(replaced)
    options = ["-f"] if getattr(make, "__module__", "") == __name__ else []
    if "(" in way or "_npy_" in way:
        options = []
    make(inputs[kind], tmp_path / "out", *options)
    assert oct(expected) == mode_of(tmp_path / "out")


# Groups


@needs_root
@pytest.mark.parametrize("way", LIKE_INPUT)
def test_group_is_kept(inputs, tmp_path, way):
    kind, make = LIKE_INPUT[way]
    os.chown(inputs[kind], -1, OTHER_GROUP)
    inputs[kind].chmod(0o640)
    make(inputs[kind], tmp_path / "out")
    assert OTHER_GROUP == (tmp_path / "out").stat().st_gid
    assert oct(0o640) == mode_of(tmp_path / "out")


@needs_root
@pytest.mark.parametrize(
    ("mode", "expected"),
    [(0o640, 0o600), (0o644, 0o644), (0o664, 0o644), (0o604, 0o600)],
)
def test_group_that_can_not_be_kept(shared, mode, expected):
    source, folder = shared / "source", shared
    source.write_bytes(b"some bytes")
    os.chown(source, USER, OTHER_GROUP)
    source.chmod(mode)
    with as_user(USER), open(source, "rb") as fp:
        like = FileAccess(fp.fileno())
        with replacing(folder / "out", None, like, access=True):
            pass
    status = (folder / "out").stat()
    assert (USER, GROUP) == (status.st_uid, status.st_gid)
    assert oct(expected) == mode_of(folder / "out")


@needs_root
@pytest.mark.parametrize(
    ("mode", "expected"), [(0o640, 0o600), (0o644, 0o644), (0o604, 0o604)]
)
@pytest.mark.parametrize("access", [True, False])
def test_folder_that_gives_its_group(tmp_path, access, mode, expected):
    """The set-group-ID bit of a folder gives new files the group of the folder."""
    source, folder = tmp_path / "source", tmp_path / "folder"
    source.write_bytes(b"")
    source.chmod(mode)
    folder.mkdir()
    os.chown(folder, -1, OTHER_GROUP)
    folder.chmod(0o2777)
    with replacing(folder / "out", None, FileAccess(str(source)), access=access):
        pass
    status = (folder / "out").stat()
    if access:
        assert (0, oct(mode)) == (status.st_gid, mode_of(folder / "out"))
    else:
        # Members of the group may be others, or in the group, for the input.
        expected = {0o604: 0o604 & ~0o070}.get(mode, expected)
        assert OTHER_GROUP == status.st_gid
        assert oct(expected) == mode_of(folder / "out")


@needs_root
def test_replaced_file_of_another_group(tmp_path):
    """Its group can't read the input, which has the same bits for its own group."""
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.write_bytes(b"some bytes")
        path.chmod(0o640)
    os.chown(target, USER, OTHER_GROUP)
    bloscpack.pack_file_to_file(source, target)
    status = target.stat()
    assert (USER, OTHER_GROUP) == (status.st_uid, status.st_gid)
    assert oct(0o600) == mode_of(target)


# ACL and attributes


@pytest.mark.parametrize("way", LIKE_INPUT)
def test_acl_and_attributes_of_the_input(inputs, tmp_path, way):
    kind, make = LIKE_INPUT[way]
    set_attribute(inputs[kind], ACL, acl())
    set_attribute(inputs[kind], "user.origin", b"here")
    make(inputs[kind], tmp_path / "out")
    assert acl() == acl_of(tmp_path / "out")
    assert oct(0o640) == mode_of(tmp_path / "out")
    assert b"here" == os.getxattr(tmp_path / "out", "user.origin")


@pytest.mark.parametrize("way", LIMITED)
def test_acl_of_an_input_that_is_not_copied(inputs, tmp_path, way):
    """Bits alone can't deny a user what others may do."""
    kind, make = LIMITED[way]
    set_attribute(inputs[kind], ACL, acl(named=0, others=4))
    make(inputs[kind], tmp_path / "out")
    assert acl_of(tmp_path / "out") is None
    assert oct(0o600) == mode_of(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "is_copied"),
    [
        (lambda path: append(path, path.parent / "plain"), False),
        (
            lambda path: append(path, path.parent / "plain", grow=True, metadata=LONG),
            True,
        ),
        (lambda path: rewrite_metadata(path, {"b": 2}), False),
        (lambda path: bloscpack.pack_bytes_to_file(b"new", path), True),
    ],
    ids=["append", "copy", "metadata", "replace"],
)
def test_acl_and_attributes_stay(inputs, change, is_copied):
    """Also where a copy replaces the file, because it has too little room."""
    path = inputs["x.blp"]
    set_attribute(path, ACL, acl())
    set_attribute(path, "user.origin", b"here")
    inode = path.stat().st_ino
    change(path)
    assert is_copied == (inode != path.stat().st_ino)
    assert acl() == acl_of(path)
    assert oct(0o640) == mode_of(path)
    assert b"here" == os.getxattr(path, "user.origin")


@needs_root
def test_acl_whose_group_can_not_be_kept(shared):
    """The bits for the group are the mask of the ACL, not the bits of the group."""
    source, folder = shared / "source", shared
    source.write_bytes(b"")
    os.chown(source, USER, OTHER_GROUP)
    set_attribute(source, ACL, acl(group=0, others=4))
    like = FileAccess(str(source))
    with as_user(USER), replacing(folder / "out", None, like, access=True):
        pass
    assert acl_of(folder / "out") is None
    assert oct(0o600) == mode_of(folder / "out")


def test_acl_of_the_replaced_file_names_those_who_can_not_read_the_input(inputs):
    target = inputs["x.blp"]
    set_attribute(target, ACL, acl())
    for mode, expected, kept in ((0o640, 0o600, None), (0o644, 0o640, acl())):
        target.unlink()
        target.write_bytes(b"")
        set_attribute(target, ACL, acl())
        inputs["plain"].chmod(mode)
        bloscpack.pack_file_to_file(inputs["plain"], target)
        assert oct(expected) == mode_of(target)
        assert kept == acl_of(target)


@pytest.mark.parametrize("access", [True, False])
@pytest.mark.parametrize(
    ("mode", "expected"), [(0o600, 0o600), (0o640, 0o600), (0o644, 0o664)]
)
def test_folder_that_gives_an_acl(tmp_path, access, mode, expected):
    """It may name users who can't read the input."""
    source, folder = tmp_path / "source", tmp_path / "folder"
    source.write_bytes(b"")
    source.chmod(mode)
    folder.mkdir()
    set_attribute(folder, "system.posix_acl_default", acl(mask=6, named=6, others=4))
    with replacing(folder / "out", None, FileAccess(str(source)), access=access):
        pass
    if access:
        assert acl_of(folder / "out") is None
        assert oct(mode) == mode_of(folder / "out")
    else:
        assert oct(expected) == mode_of(folder / "out")


@needs_root
@pytest.mark.parametrize("others", [0, 4])
def test_copy_that_its_owner_could_not_read(shared, others):
    """A user with an entry in the access control list of the file changes it."""
    path = shared / "x.blp"
    bloscpack.pack_bytes_to_file(b"plain", path, metadata={"a": 1})
    os.chown(path, USER + 1, GROUP)
    entries = acl(named=6, mask=6, others=others).replace(
        struct.pack("<HHI", NAMED_USER, 6, 1), struct.pack("<HHI", NAMED_USER, 6, USER)
    )
    set_attribute(path, ACL, entries)
    with as_user(USER):
        if others:
            rewrite_metadata(path, LONG, grow=True)
        else:
            with pytest.raises(StorageError, match="the owner of the file could not"):
                rewrite_metadata(path, LONG, grow=True)
    with as_user(USER + 1):
        expected = LONG if others else {"a": 1}
        assert (b"plain", expected) == bloscpack.unpack_bytes_from_file(path)
    assert ["x.blp"] == os.listdir(shared)


# Who may read a file

READERS = [
    # (user, permission bits, whether the user may read the file)
    (USER, 0o600, True),
    (0, 0o600, True),
    (MEMBER, 0o600, False),
    (MEMBER, 0o620, False),
    (MEMBER, 0o660, True),
    (STRANGER, 0o660, False),
    (STRANGER, 0o662, False),
    (STRANGER, 0o666, True),
]


@needs_root
@pytest.mark.parametrize("primary", [False, True])
@pytest.mark.parametrize(("uid", "mode", "expected"), READERS)
def test_who_may_read_a_file(tmp_path, monkeypatch, uid, mode, expected, primary):
    import grp
    import pwd

    path = tmp_path / "file"
    path.write_bytes(b"")
    os.chown(path, USER, GROUP)
    path.chmod(mode)
    users = {MEMBER: ("member", GROUP if primary else 99), STRANGER: ("stranger", 99)}

    def user_of(uid):
        name, gid = users[uid]
        return pwd.struct_passwd([name, "x", uid, gid, "", "/", ""])

    def group_of(gid):
        members = [] if primary else ["member", "other"]
        return grp.struct_group(["group", "x", gid, members])

    monkeypatch.setattr(pwd, "getpwuid", user_of)
    monkeypatch.setattr(grp, "getgrgid", group_of)
    with path.open("rb") as fp:
        assert expected is may_read(uid, fp)
    # The bits of the group are the mask of a list; the group may have fewer rights.
    set_attribute(path, ACL, acl(group=4, named=6, mask=mode >> 3 & 7, others=mode & 7))
    with path.open("rb") as fp:
        assert (expected and (uid, mode) != (MEMBER, 0o660)) is may_read(uid, fp)


def test_attributes_that_are_refused(inputs, tmp_path, monkeypatch):
    set_attribute(inputs["plain"], ACL, acl(others=4))

    def refuse(*arguments):
        raise PermissionError(1, "refused")

    monkeypatch.setattr(os, "setxattr", refuse)
    main(["c", str(inputs["plain"]), str(tmp_path / "out")])
    assert oct(0o600) == mode_of(tmp_path / "out")


def test_system_without_attributes(inputs, tmp_path, monkeypatch):
    for name in ("listxattr", "getxattr", "setxattr", "removexattr"):
        monkeypatch.delattr(os, name, raising=False)
    inputs["plain"].chmod(0o640)
    main(["c", str(inputs["plain"]), str(tmp_path / "out")])
    assert oct(0o640) == mode_of(tmp_path / "out")


def test_capabilities_are_not_copied(tmp_path):
    """They are like the set-user-ID bit."""
    source = tmp_path / "source"
    source.write_bytes(b"")
    capability = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)
    set_attribute(source, "security.capability", capability)
    with replacing(tmp_path / "out", None, FileAccess(str(source)), access=True):
        pass
    assert [] == os.listxattr(tmp_path / "out")


# Other


@pytest.mark.parametrize(
    "arguments",
    [
        ["c", "plain", "link"],
        ["c", "--npy", "npy", "link"],
        ["d", "x.blp", "link"],
        ["d", "x.blp", "out", "--metadata-to", "link"],
        ["recover", "x.blp", "link"],
        ["c", "--output-dir", "folder", "plain"],
    ],
)
def test_command_follows_a_dangling_link_only_if_forced(
    inputs, monkeypatch, capsys, arguments
):
    folder = inputs["plain"].parent
    monkeypatch.chdir(folder)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("nothing")
    (folder / "folder" / "plain.blp").symlink_to("../nothing")
    link = "folder/plain.blp" if "folder" in arguments else "link"
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert 1 == raised.value.code
    expected = (
        "blpk: error: output file '%s' exists! It is a symbolic link to the missing "
        "file '%s'\n" % (link, folder / "nothing")
    )
    assert expected == capsys.readouterr().err
    assert not (folder / "nothing").exists()
    main(["-f", *arguments])
    assert (folder / link).is_symlink()
    assert (folder / "nothing").exists()


def test_metadata_are_as_private_as_their_file(inputs, tmp_path):
    """The reproduction: metadata of a private file were open to all."""
    inputs["x.blp"].chmod(0o600)
    metadata_to(inputs["x.blp"], tmp_path / "metadata")
    assert {"a": 1} == json.loads((tmp_path / "metadata").read_text())
    assert oct(0o600) == mode_of(tmp_path / "metadata")


def test_user_that_the_system_does_not_know_is_no_member(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(0o660)
    for _ in range(2):
        with path.open("rb") as fp:
            assert may_read(path.stat().st_uid, fp)
            assert not may_read(path.stat().st_uid + STRANGER, fp)
        monkeypatch.setitem(sys.modules, "grp", None)
