"""A plugin of pytest for Pythons that lack some packages (tools/pythons.py): a test that imports one is skipped.

KADENCE_TESTS_WITHOUT names the modules. It is loaded by ``-p tests.lacking`` and by nothing else.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

import pytest


class _Skipping:
    """Asked for a module that nobody else has found."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> None:
        """Skip the test, or the module of tests, that imports it.

        Not on other threads: there the exception would end the thread, a broker's for example, and nobody the test.
        """
        if name in self._names and threading.current_thread() is threading.main_thread():
            pytest.skip(f"{name} is not there for this Python", allow_module_level=True)


def pytest_configure() -> None:
    sys.meta_path.append(_Skipping(os.environ.get("KADENCE_TESTS_WITHOUT", "").split()))
