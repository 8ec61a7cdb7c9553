"""Files that are written whole, where links and permissions stay as they are."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from valuetrack.io.atomic import write_atomically


def write(path, content=b"new"):
    write_atomically(path, lambda file: file.write(content))


def test_a_link_stays_one_and_its_target_is_written(tmp_path):
    (tmp_path / "kept").mkdir()
    target, link = tmp_path / "kept" / "file", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no pipes with names")
def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        write(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path):
    before = os.umask(0o077)
    try:
        write(tmp_path / "private")
        (tmp_path / "shared").write_bytes(b"old")
        (tmp_path / "shared").chmod(0o664)
        write(tmp_path / "shared")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"private": 0o600, "shared": 0o664}


def test_a_full_disk_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(file):
        file.write(b"half of the new")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(path, fail)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
