"""A plugin of pytest: while a test runs, each second container that is made begins a collection that lets others run.

For `make check-memory`. The collector looks at young objects only, or a test would take minutes.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Generator

import pytest

_SWITCH_S = 1e-5


def _let_others_in(phase: str, info: dict[str, int]) -> None:
    if threading.active_count() > 1:
        time.sleep(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    before, switch = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_let_others_in)
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(1, 100, 1_000_000)
    try:
        return (yield)
    finally:
        gc.set_threshold(*before)
        sys.setswitchinterval(switch)
        gc.callbacks.remove(_let_others_in)
        gc.unfreeze()
