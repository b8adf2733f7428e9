"""The directory of the sockets between Java and Spark's Python processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kadence_spark import sockets
from kadence_spark.sockets import socket_settings

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere there are no sockets of Unix")

_ENABLED = "spark.python.unix.domain.socket.enabled"
_DIRECTORY = "spark.python.unix.domain.socket.dir"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    sockets._directory.cache_clear()
    yield
    sockets._directory.cache_clear()


def test_it_is_closed_and_one_for_the_process() -> None:
    before = os.umask(0)
    try:
        settings = socket_settings("local[2]", {})
    finally:
        os.umask(before)
    about = Path(settings[_DIRECTORY]).stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o700, os.geteuid())
    assert socket_settings("local", {"spark.ui.enabled": "false"}) == settings


def test_it_goes_with_its_process() -> None:
    program = (
        "from kadence_spark.sockets import socket_settings; import os\n"
        "print(*socket_settings('local', {}).values(), flush=True)\n"
        "raise SystemExit(0 if os.fork() else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("/")
    assert not Path(done.stdout.strip()).exists()


@pytest.mark.parametrize("conf", [{_DIRECTORY: "/mine"}, {_ENABLED: "false"}, {_ENABLED: "true"}])
def test_what_a_user_sets_holds(conf: dict[str, str]) -> None:
    assert socket_settings("local", conf) == {}


def test_executors_of_a_cluster_have_their_own_directories() -> None:
    assert socket_settings("yarn", {}) == socket_settings("spark://host:7077", {}) == {}


def test_a_path_that_is_too_long_for_a_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert Path(socket_settings("local", {})[_DIRECTORY]).parent == Path("/tmp")
    assert list(long.iterdir()) == []
    sockets._directory.cache_clear()
    monkeypatch.setattr(sockets, "_LONGEST_PATH", 50)
    assert socket_settings("local", {}) == {_ENABLED: "false"}
