"""What holds in every test of the producer."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator

import pytest

from kadence.client.gate import Gate
from kadence.weak import all_of


@pytest.fixture(autouse=True)
def no_log_call_under_a_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is logged, at any level: a handler may call the producer, which would wait for its own lock."""
    gates: weakref.WeakSet[Gate] = weakref.WeakSet()
    found: list[str] = []
    make, look = Gate.__init__, logging.Logger.isEnabledFor

    def made(gate: Gate, kind: str = "client") -> None:
        make(gate, kind)
        gates.add(gate)

    def looked_at(logger: logging.Logger, level: int) -> bool:
        """The first thing that each call of a logger does."""
        # Spark's client logs when a Java object of an earlier test is collected, which may be anywhere.
        if not logger.name.startswith("py4j") and any(gate.is_mine for gate in all_of(lambda: gates)):
            # With the stack, since whoever calls is what is wrong.
            found.append(str(logger.findCaller(stack_info=True, stacklevel=2)))
        return look(logger, level)

    monkeypatch.setattr(Gate, "__init__", made)
    monkeypatch.setattr(logging.Logger, "isEnabledFor", looked_at)
    yield
    assert not found, found[0]
