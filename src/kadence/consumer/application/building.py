"""Makes the parts of one consumer's application side. Application side; nothing here waits."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from kadence.client.engine import Engine
from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.consumer.application.callbacks import Interceptors, Rebalancing
from kadence.consumer.application.chosen import Chosen
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.core import Core
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.known_assignment import KnownAssignment
from kadence.consumer.application.polls import Polls
from kadence.consumer.application.processing import Stalls
from kadence.consumer.client_state import ClientState
from kadence.consumer.decoded_records import Attention
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_state import SharedState
from kadence.forked import in_children
from kadence.loading import load
from kadence.logs import logger
from kadence.types import GroupMetadata

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducers

__all__ = ["core_of"]

log = logger("kadence.consumer")


def core_of(
    config: ConsumerConfig,
    shared_state: SharedState,
    engine: Engine,
    clock: Clock,
    letter_producers: LetterProducers,
    aside: Callable[[], Aside],
) -> Core:
    """The core of a new consumer, whose engine it starts.

    Args:
        letter_producers: makes the producer of dead letter records. aside: where calls are made that may block.
    """
    # Steps, which do not enter a shell, are refused in a child: see `fetch._steps`.
    in_children(shared_state.attention, _raise)
    chosen = Chosen()
    exchange = Exchange(
        shared_state, clock, GroupMetadata(config.group_id or "", group_instance_id=config.group_instance_id)
    )
    interceptors = Interceptors(config.interceptors, shared_state) if config.interceptors else None
    known = KnownAssignment(shared_state, chosen)
    exchange.stands = known.stands
    commits = Commits(config, shared_state, exchange, clock, interceptors, known)
    rebalancing = Rebalancing(shared_state, exchange, commits, clock, known)
    collector = FetchCollector(
        shared_state,
        check_crcs=config.check_crcs,
        max_batch_bytes=config.max_batch_bytes,
        buffer_memory=config.buffer_memory,
        unpack_bytes=config.unpack_bytes,
        decoded_bytes=config.decoded_bytes,
        clock=clock,
    )
    if config.key_deserializer is not None or config.value_deserializer is not None:
        # Most consumers take bytes, and load neither of them.
        load("kadence.consumer.fetch.decoding")
    dead_letters = _dead_letters(config, shared_state, letter_producers, aside)
    stalls = Stalls(
        config.group_id,
        lambda: (collector.given(), collector.in_hand()),
        config.stall_report_callback,
        shared_state.wall_offset_ms,
    )
    _notice(shared_state, stalls)
    polls = Polls(
        config,
        shared_state,
        clock,
        chosen,
        exchange,
        known,
        commits,
        rebalancing,
        collector,
        stalls,
        interceptors,
        dead_letters,
    )
    core = Core(
        config,
        shared_state,
        engine,
        clock,
        chosen=chosen,
        exchange=exchange,
        known=known,
        commits=commits,
        rebalancing=rebalancing,
        polls=polls,
        stalls=stalls,
        interceptors=interceptors,
        dead_letters=dead_letters,
    )
    if config.group_id is not None and config.processing_timeout_ms > config.max_poll_interval_ms:
        log.warning(
            "max.poll.interval.ms (%d) is below session.timeout.ms (%d) and is treated as %d: the group waits "
            "that long for a lost member in any case",
            config.max_poll_interval_ms,
            config.session_timeout_ms,
            config.processing_timeout_ms,
        )
    engine.start()
    return core


def _raise(attention: Attention) -> None:
    attention.up = True


def _notice(client_state: ClientState, stalls: Stalls) -> None:
    """Stalls are told to these."""
    # The network thread keeps it: held by that, a consumer that nobody closed would never be collected.
    noticed = weakref.WeakMethod(stalls.noticed)
    client_state.on_stall = lambda event: None if (notice := noticed()) is None else notice(event)


def _dead_letters(
    config: ConsumerConfig,
    client_state: ClientState,
    letter_producers: LetterProducers,
    aside: Callable[[], Aside],
) -> DeadLetters | None:
    if config.dead_letter_topic is None:
        return None
    # Most consumers write none.
    from kadence.consumer.fetch.dead_letters import DeadLetters

    return DeadLetters(
        config.dead_letter_topic,
        config.group_id,
        lambda: letter_producers(config),
        client_state.signal.set,
        aside(),
    )
