"""The one file that knows both sides of a share consumer: it makes their parts, and the shared state between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kadence.client.engine import Engine
from kadence.clock import Clock
from kadence.config import ShareConsumerConfig
from kadence.consumer.application.client_core import Chosen
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.consumer.assembly import dead_letters_of, notice
from kadence.share.application.bad_records import Decoding
from kadence.share.application.buffer import Buffer
from kadence.share.application.core import ShareCore
from kadence.share.application.holding import Holding
from kadence.share.application.polls import SharePolls
from kadence.share.application.results import Results
from kadence.share.share_state import ShareState
from kadence.types import GroupMetadata

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import LetterProducers

__all__ = ["core_of"]


def core_of(
    config: ShareConsumerConfig,
    shared_state: ShareState,
    engine: Engine,
    clock: Clock,
    letter_producers: LetterProducers,
    aside: Callable[[], Aside],
) -> ShareCore:
    """The core of a new share consumer, whose engine it starts.

    Args:
        letter_producers: makes the producer of dead letter records. aside: where calls are made that may block.
    """
    chosen = Chosen()
    exchange = Exchange(shared_state, clock, GroupMetadata(config.group_id or ""))
    holding = Holding(is_explicit=config.is_explicit)
    results = Results(shared_state, holding)
    dead_letters = dead_letters_of(config, shared_state, letter_producers, aside)
    decoding: Decoding | None = None
    if config.key_deserializer is not None or config.value_deserializer is not None:
        decoding = Decoding(config, holding, dead_letters, shared_state.alert, clock)
    buffer = Buffer(
        shared_state,
        holding,
        decoding,
        clock,
        check_crcs=config.check_crcs,
        max_batch_bytes=config.max_batch_bytes,
    )
    stalls = Stalls(
        config.group_id, holding.in_hand, config.stall_report_callback, shared_state.wall_offset_ms
    )
    notice(shared_state, stalls)
    polls = SharePolls(config, shared_state, clock, chosen, exchange, holding, buffer, results, stalls)
    core = ShareCore(
        config,
        shared_state,
        engine,
        clock,
        chosen=chosen,
        exchange=exchange,
        stalls=stalls,
        holding=holding,
        buffer=buffer,
        polls=polls,
        results=results,
        dead_letters=dead_letters,
    )
    engine.start()
    return core
