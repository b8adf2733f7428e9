"""What other people's clients leave behind troubles no test."""

from __future__ import annotations

import gc
import logging
import warnings
from types import ModuleType
from typing import Any

import pytest
from tests import foreign


class _Client:
    """One that nobody closed: its finalizer warns and logs."""

    itself: Any
    ended = 0

    def __del__(self) -> None:
        warnings.warn("unclosed", ResourceWarning, stacklevel=1)
        logging.getLogger("asyncio").error("unclosed")
        type(self).ended += 1


def test_what_is_left_is_collected_after_the_test_and_unheard(caplog: pytest.LogCaptureFixture) -> None:
    module = ModuleType("uses_a_client")
    module.Client = type("Client", (_Client,), {"__module__": "aiokafka.client"})  # type: ignore[attr-defined]
    with foreign.collected_afterwards(module):
        client = module.Client()
        client.itself = client
        del client
        assert not gc.isenabled()
    assert module.Client.ended == 1
    assert gc.isenabled()
    assert caplog.records == []
    logging.getLogger("asyncio").error("heard again")
    assert len(caplog.records) == 1


def test_other_modules_are_left_alone() -> None:
    with foreign.collected_afterwards(ModuleType("plain")):
        assert gc.isenabled()
