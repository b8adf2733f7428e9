"""Answers are damaged by chance: bits flipped, bytes cut, inserted and repeated, lengths and counts that lie."""

from __future__ import annotations

import random
from typing import Final

import pytest
from tests.fuzz.mutation import Mutator
from tests.hostile.clients import CLIENTS, filled_broker
from tests.hostile.proxy import Answer, lying_proxy
from tests.luck import seeds

from kadence.protocol.api_versions import ApiVersionsRequest

_SHARE: Final = 0.3
"""How many answers are damaged."""
_ROUNDS: Final = 40


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_damaged_answers(kind: str, seed: int) -> None:
    chance = random.Random(seed)

    def lie(answer: Answer) -> bytes:
        frame = answer.encoded()
        # Without versions nothing else would be asked.
        share = _SHARE / 4 if isinstance(answer.request, ApiVersionsRequest) else _SHARE
        if chance.random() >= share:
            return frame
        # The correlation id stays, mostly: what follows is to be read.
        kept = 4 if chance.random() < 0.9 else 0
        return frame[:kept] + Mutator([frame[kept:]], chance.randrange(1 << 30))()

    with filled_broker() as broker, lying_proxy(broker, lie) as servers:
        CLIENTS[kind](servers, _ROUNDS)
