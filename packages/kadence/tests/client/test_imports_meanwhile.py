"""A client is made while another thread imports what it looks at."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from kadence import Consumer


def test_a_client_is_made_while_another_thread_imports_multiprocessing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is in `sys.modules` before it has its functions."""
    monkeypatch.setitem(sys.modules, "multiprocessing.process", ModuleType("multiprocessing.process"))
    Consumer(bootstrap_servers="localhost:1").close()
