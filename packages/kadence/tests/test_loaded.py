"""A module that another thread is importing is as good as absent: nothing reads half of it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kadence
from kadence.loaded import attribute_if_loaded
from kadence.net.dial import tell
from kadence.net.sockets import stream_of
from kadence.reading import progress


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `sys.modules` holds while a thread is at the first line of these modules."""
    for name in ("ssl", "IPython"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))


def test_an_attribute() -> None:
    assert attribute_if_loaded("sys", "modules") is sys.modules
    assert attribute_if_loaded("sys", "nonsense") is None
    assert attribute_if_loaded("nobody.loads.this", "name") is None


@pytest.mark.usefixtures("importing")
def test_a_connection_comes_while_another_thread_imports_ssl() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = stream_of(ours)
        assert not stream.has_unwritten
    assert tell(ConnectionRefusedError(111, "Connection refused")) == "Connection refused"


@pytest.mark.usefixtures("importing")
def test_no_bar_while_another_thread_imports_ipython() -> None:
    assert not progress._in_notebook()


def test_one_function_looks_at_what_is_loaded() -> None:
    source = Path(kadence.__file__).parent
    looking = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "sys.modules.get(" in path.read_text()
    }
    assert looking == {"loaded.py"}
