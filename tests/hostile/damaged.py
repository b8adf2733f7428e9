"""Answers are damaged by chance, or lie, on the way to real clients with their threads and sockets."""

from __future__ import annotations

import random
from functools import partial
from typing import Final

from tests.fuzz.mutation import Mutator
from tests.fuzz.target import Story, Tally
from tests.hostile.clients import CLIENTS, filled_broker
from tests.hostile.lying import lie_about
from tests.hostile.proxy import Answer, lying_proxy

from kadence.protocol.api_versions import ApiVersionsRequest

__all__ = ["STORIES"]

_SHARE: Final = 0.3
"""How many answers are changed."""
_LIES: Final = 0.4
"""How many of these can be read."""
_ROUNDS: Final = 40
_KEPT: Final = ("host", "port", "brokers", "coordinators", "node_endpoints", "throttle_time_ms", "records")
"""Where clients go next, how long they wait, and what no checksum would tell them."""


def _tell(kind: str, seed: int) -> Tally:
    chance, tally = random.Random(seed), Tally()

    def change(answer: Answer) -> bytes:
        frame = answer.encoded()
        # Without versions nothing else would be asked.
        share = _SHARE / 4 if isinstance(answer.request, ApiVersionsRequest) else _SHARE
        if chance.random() >= share:
            return frame
        tally.mutations += 1
        if chance.random() < _LIES:
            lie_about(answer.response, chance, but=_KEPT)
            try:
                return answer.encoded()
            except Exception:  # noqa: BLE001 - nobody could write it
                return frame
        # The correlation id stays, mostly: what follows is to be read.
        kept = 4 if chance.random() < 0.9 else 0
        return frame[:kept] + Mutator([frame[kept:]], chance.randrange(1 << 30))()

    with filled_broker() as broker, lying_proxy(broker, change) as servers:
        CLIENTS[kind](servers, _ROUNDS, tally.met)
    return tally


STORIES: Final = tuple(
    Story(f"answers-to-{kind}", partial(_tell, kind), share=150, memory=128) for kind in CLIENTS
)
