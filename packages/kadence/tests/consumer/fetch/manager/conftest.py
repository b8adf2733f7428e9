"""Every choice of these tests is compared with the one of a walk over all partitions."""

from __future__ import annotations

import pytest

from kadence.consumer.fetch.manager.memory import FetchChoice, Prefetch
from kadence.consumer.fetch.manager.session import Broker


def walked(per_partition: int, broker: Broker) -> FetchChoice:
    """What to ask a broker for, found by a look at all of its partitions."""
    total = holding = 0
    has_idle = False
    for state in (*broker.wanted.states, *broker.full.states):
        if (held := state.buffered_bytes) > 0:
            total += held
            holding += 1
        elif state.is_idle or state.awaits_fetch:
            has_idle = True
        else:
            return FetchChoice.ALL
    if total <= per_partition * holding:
        return FetchChoice.ALL
    return FetchChoice.HUNGRY if has_idle else FetchChoice.NONE


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh = Prefetch.weigh

    def compared(self: Prefetch, broker: Broker) -> FetchChoice:
        expected = walked(self._per_partition, broker)
        assert broker.unsettled.keys() <= broker.wanted.states.keys() | broker.full.states.keys()
        chosen = weigh(self, broker)
        assert chosen is expected
        return chosen

    monkeypatch.setattr(Prefetch, "weigh", compared)
