"""Directories that another user of the machine has made, or may write to, are refused wherever Kadence uses one."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.demo import command

from kadence import publish_state
from kadence.errors import ConfigError
from kadence.java import _wrapped, cache_directory
from kadence.own_files import check_own, new_file, own_directory
from kadence_broker import Broker
from kadence_cli.files import whole_file
from kadence_cli.top import local
from kadence_cli.top.memory import Memory
from kadence_testing.maven import maven_jars

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes say nothing elsewhere")

_NOBODY = 65534


def _foreign(path: Path) -> None:
    os.chown(path, _NOBODY, -1)


def _foreign_link(path: Path) -> None:
    """It leads to a directory that is ours."""
    real = path.with_name("real")
    path.rename(real)
    path.symlink_to(real)
    os.chown(path, _NOBODY, -1, follow_symlinks=False)


def _of_all(path: Path) -> None:
    path.chmod(0o777)


def _of_a_group(path: Path) -> None:
    os.chown(path, -1, _NOBODY)
    path.chmod(0o770)


_OTHERS = f"belongs to another user of this machine (uid {_NOBODY})"
_WRITERS = "other users of this machine may write to"
_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
_HARMS = [
    pytest.param(_foreign, _OTHERS, marks=_as_root),
    pytest.param(_foreign_link, _OTHERS, marks=_as_root),
    pytest.param(_of_all, _WRITERS),
    pytest.param(_of_a_group, _WRITERS, marks=_as_root),
]


def _published(path: Path) -> None:
    publish_state().close()


def _read_state(path: Path) -> None:
    for each in local.processes(path):
        raise PermissionError(each.trouble)


def _loaded(path: Path) -> None:
    """A file that others may change is none."""
    (path / "top.json").write_text('{"tab": "members"}')
    assert Memory.load(path / "top.json") == Memory()
    (path / "top.json").unlink()
    Memory(tab="members").save(path / "top.json")
    assert list(path.iterdir()) == []
    own_directory(path)


_DOORS: dict[str, Callable[[Path], object]] = {
    "any": own_directory,
    "what is there": check_own,
    "data directory": lambda path: Broker(data_dir=path),
    "publish_state": _published,
    "kadence top, state": _read_state,
    "kadence top, memory": _loaded,
    "demo": command._clean,
    "cache": lambda path: cache_directory(),
    "jars": lambda path: maven_jars("nothing-1.0", ["org.example:nothing:1.0"]),
    "wrapper of Java": lambda path: _wrapped(Path("/nowhere"), cache_directory()),
}


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize(("harm", "words"), _HARMS)
def test_a_directory_that_others_own_or_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, harm: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "kadence"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KADENCE_STATE_DIR", str(path))
    path.mkdir()
    harm(path)
    with pytest.raises((PermissionError, ConfigError), match=re.escape(words)) as raised:
        _DOORS[door](path)
    assert str(path) in str(raised.value)
    assert list(path.iterdir()) == []


def test_jars_that_others_could_change_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    libs = tmp_path / "kadence" / "jars" / "nothing-1.0" / "libs"
    libs.mkdir(parents=True)
    assert maven_jars("nothing-1.0", ["org.example:nothing:1.0"]) == libs
    libs.chmod(0o777)
    with pytest.raises(PermissionError, match=f"{_WRITERS} {libs};"):
        maven_jars("nothing-1.0", ["org.example:nothing:1.0"])


def test_what_is_made_is_closed_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(0)
    try:
        own_directory(tmp_path / "made" / "in" / "it")
        java = _wrapped(Path("/nowhere"), cache_directory())
        Memory(tab="members").save(tmp_path / "state" / "top.json")
    finally:
        os.umask(before)
    for path in (
        tmp_path / "made" / "in" / "it",
        tmp_path / "kadence",
        java,
        java / "bin",
        tmp_path / "state",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((tmp_path / "state" / "top.json").stat().st_mode) == 0o600


def test_a_directory_of_ones_own_that_others_may_read_is_taken_and_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert own_directory(tmp_path) == tmp_path
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    check_own(link)


def test_a_group_that_is_this_user_alone_is_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp
    import pwd

    user = pwd.getpwuid(os.geteuid()).pw_name
    found: list[str] = []
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((user, "x", gid, found)))
    tmp_path.chmod(0o775)
    check_own(tmp_path)
    found.append("somebody")
    with pytest.raises(PermissionError, match=_WRITERS):
        check_own(tmp_path)


def test_files_are_not_written_through_links_of_others(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"mine")
    link.symlink_to(target)
    with pytest.raises(FileExistsError):
        new_file(link)
    assert target.read_bytes() == b"mine"


def test_where_a_file_is_written_first_cannot_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    monkeypatch.setattr(os, "urandom", bytes)
    with whole_file(str(tmp_path / "out")) as file:
        file.write(b"records")
        (part,) = tmp_path.glob(".out.*")
    part.symlink_to(target)
    with pytest.raises(OSError, match="File exists"), whole_file(str(tmp_path / "out")) as file:
        file.write(b"others")
    assert target.read_bytes() == b"mine"
    assert (tmp_path / "out").read_bytes() == b"records"
