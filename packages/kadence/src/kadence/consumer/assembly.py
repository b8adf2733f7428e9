"""The one file that knows both sides: it makes the parts of a consumer's two sides, and the shared state between them.

It also knows the producer, for dead letters. The public classes stand on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from kadence.client.engine import Engine
from kadence.client.network_thread import NetworkClientDelegate, NetworkSide
from kadence.client.request_manager import RequestManager
from kadence.client.surroundings import JobRunner, Surroundings, here
from kadence.clock import Clock
from kadence.config import ClientConfig, ConsumerConfig
from kadence.connection.request import ConnectionPurpose
from kadence.consumer.application.callbacks import Interceptors, Rebalancing
from kadence.consumer.application.client_core import Chosen
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.core import Core
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.known_assignment import KnownAssignment
from kadence.consumer.application.polls import Polls
from kadence.consumer.application.processing import Stalls
from kadence.consumer.arming import arm_native_heartbeat
from kadence.consumer.background_events import Reaper
from kadence.consumer.client_state import ClientState
from kadence.consumer.decoded_records import Attention
from kadence.consumer.event_processor import ApplicationEventProcessor, RebalanceEventHandler
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch.manager.fetch import FetchRequestManager
from kadence.consumer.fetch.manager.fetchable import missing_topics
from kadence.consumer.group.auto import AutoMembership
from kadence.consumer.group.commit import CommitRequestManager
from kadence.consumer.group.committed import OffsetKeeper
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.direct_commits import DirectCommits
from kadence.consumer.group.epoch_member import new_member_id
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.group.held_back import HeldBack
from kadence.consumer.group.kip848_member import ConsumerMembership
from kadence.consumer.group.membership import Membership
from kadence.consumer.measures import Measures
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.positions.offsets import OffsetsRequestManager
from kadence.consumer.positions.validation import ValidationManager
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.consumer.turn import Turn
from kadence.forked import in_children
from kadence.lazy_dataclasses import replace
from kadence.loading import load
from kadence.logs import logger
from kadence.net import ConnectionConfig, NetworkClient
from kadence.types import GroupMetadata

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.config import ShareConsumerConfig
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducer, LetterProducers
    from kadence.consumer.group.classic_member import ClassicMembership

__all__ = ["aside", "core_of", "dead_letters_of", "letter_producer", "network_side", "notice"]

log = logger("kadence.consumer")


def network_side(config: ConsumerConfig, around: Surroundings) -> tuple[SharedState, Engine]:
    """The shared state of a new consumer and the engine behind it, not yet started.

    The network client is made here rather than on its thread only because the shared state must be able to wake
    it; nothing but `wakeup` is called from outside.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    # These are for the application side. They may refer to the consumer, and objects that the network thread refers to
    # are never collected.
    config = replace(
        config, key_deserializer=None, value_deserializer=None, interceptors=(), stall_report_callback=None
    )
    if config.group_protocol == "classic":
        _load_classic_protocol()
    measures = Measures()
    client = around.client(ConnectionConfig.of(config), measures.network)
    measures.held_bytes = client.arenas.held
    shared_state = SharedState(client.wakeup, measures, around.clock, around.wall_ms, client.pass_on())
    side = NetworkSide(
        "consumer", shared_state, lambda: _turn(config, around, client, shared_state), client.close
    )
    return shared_state, around.engine(f"{config.client_id}-network", side)


def aside() -> Aside:
    """Runs a consumer's calls that may block, off its event loop."""
    from kadence.client.aside import ThreadsAside

    return here().aside or ThreadsAside()


def letter_producer(config: ClientConfig, transactional_id: str | None = None) -> LetterProducer:
    """A consumer's producer, for dead letters or the outputs of `process`. Most consumers need none, and load none."""
    load("kadence.producer.dead_letters")
    from kadence.producer.dead_letters import producer_for

    made: LetterProducer = producer_for(config, transactional_id)
    return made


def _turn(
    config: ConsumerConfig, around: Surroundings, client: NetworkClient, shared_state: SharedState
) -> Turn:
    clock = around.clock
    subscription = Subscription()
    commits: CommitRequestManager | None = None
    reaper = Reaper(lambda: None if commits is None else commits.trouble(), client.trouble)
    background_event_handler = RebalanceEventHandler(shared_state, subscription, reaper)
    delegate = NetworkClientDelegate(client, shared_state.measures.requests)
    jobs = around.jobs(f"{config.client_id}-jobs", client.wakeup)
    metadata = MetadataManager(config, background_event_handler)
    subscription.topic_id_of = metadata.topic_id
    managers: list[RequestManager] = [metadata]
    membership: Membership | None = None
    coordinator: CoordinatorRequestManager | None = None
    if config.group_id is not None:
        coordinator = CoordinatorRequestManager(config.group_id, config, background_event_handler)
        coordinator.on_silent = lambda node_id, since: client.disconnect(node_id, unless_heard_since=since)
        coordinator.on_hang_up = lambda node_id: client.disconnect(node_id, ConnectionPurpose.GROUP)
        # It may be newer than our metadata: keep it beside the others until the next response names all.
        coordinator.on_found = lambda node: client.set_nodes((*client.nodes(), node))
        membership = _membership(
            config,
            coordinator,
            subscription,
            metadata,
            jobs,
            background_event_handler,
            around.new_member_id or new_member_id,
        )
        heartbeat = HeartbeatRequestManager(
            coordinator, membership, shared_state.progress, config, background_event_handler
        )
        shared_state.measures.group.pulse = heartbeat
        if around.has_native_heartbeat:
            arm_native_heartbeat(heartbeat, client, delegate, shared_state, clock)
        commits = CommitRequestManager(coordinator, membership, metadata, config, background_event_handler)
        if shared_state.arrivals is not None:
            shared_state.direct_commits = client.direct_users[ConnectionPurpose.GROUP] = DirectCommits(
                commits,
                delegate,
                reaper,
                clock,
                shared_state.signal,
                shared_state.measures.requests.committed,
            )
        held_back = HeldBack(coordinator, membership, subscription, config, jobs)
        managers += [coordinator, commits, heartbeat, membership, held_back]
    validation = ValidationManager(config, subscription, metadata, background_event_handler)
    offsets = OffsetsRequestManager(
        config, subscription, metadata, commits, background_event_handler, around.wall_ms
    )
    reaper.missing = offsets.missing
    fetch = FetchRequestManager(
        config, subscription, metadata, shared_state, client.arenas, background_event_handler
    )
    shared_state.measures.books = fetch.memory
    # In this order: positions that validation finds truncated are looked up, and only valid ones are fetched, in the
    # same turn.
    managers += [validation, offsets, fetch]
    processor = ApplicationEventProcessor(
        subscription, metadata, offsets, membership, commits, background_event_handler
    )
    processor.is_cut_off = client.is_cut_off
    if commits is not None and membership is not None:
        # Before the program's first commit only this tells of transactions, which need it.
        perhaps = config.isolation_level == "read_committed" and not config.auto_commit

        def is_transactional() -> bool:
            known = shared_state.is_transactional
            return perhaps if known is None else known

        keeper = OffsetKeeper(commits, membership, subscription, config.request_timeout_ms, is_transactional)
        processor.keep = keeper.keep
        commits.is_foreign, commits.was_ours = subscription.is_foreign, subscription.ever.__contains__
        managers.append(keeper)
        commits.is_cut_off = client.is_cut_off

    def metadata_changed(now: int) -> None:
        client.set_nodes(metadata.cluster.nodes.values(), metadata.cluster.cluster_id)
        processor.topics_changed(now)
        shared_state.missing = missing_topics(metadata.missing("subscription"))

    def rebootstrap(now: int) -> None:
        client.rebootstrap()
        if coordinator is not None:
            coordinator.mark_unknown(now, "all known brokers are forgotten")

    metadata.on_change = metadata_changed
    metadata.on_moved = lambda nodes: client.set_nodes(
        {**{node.node_id: node for node in client.nodes()}, **nodes}.values()
    )
    metadata.on_rebootstrap = rebootstrap
    client.on_wrong_node = metadata.brokers_are_wrong
    return Turn(
        clock,
        shared_state,
        delegate,
        processor,
        reaper,
        background_event_handler,
        jobs,
        membership,
        tuple(managers),
    )


def _membership(
    config: ConsumerConfig,
    coordinator: CoordinatorRequestManager,
    subscription: Subscription,
    metadata: MetadataManager,
    jobs: JobRunner,
    background_event_handler: RebalanceEventHandler,
    new_id: Callable[[], str],
) -> Membership:
    """The one that speaks ``group.protocol``."""

    def classic() -> ClassicMembership:
        from kadence.consumer.group.classic_member import ClassicMembership

        return ClassicMembership(coordinator, subscription, metadata, config, jobs, background_event_handler)

    def consumer(min_version: int) -> ConsumerMembership:
        return ConsumerMembership(
            coordinator,
            subscription,
            metadata,
            config,
            background_event_handler,
            min_version=min_version,
            new_id=new_id,
        )

    if config.group_protocol == "consumer":
        return consumer(0)
    if config.group_protocol == "classic":
        return classic()

    def load_classic() -> Callable[[], ClassicMembership]:
        _load_classic_protocol()
        return classic

    # Chosen by default only where it is final: version 0 is that of Kafka 3.7 to 3.9, a preview.
    return AutoMembership(coordinator, consumer(1), config, jobs, load_classic)


def _load_classic_protocol() -> None:
    """Read the classic protocol: never on the network thread. Most consumers need none of its files."""
    load("kadence.consumer.group.classic_member")


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
        letter_producers: makes the producer of dead letter records. aside: runs calls that may block.
    """
    refuse_steps_in_children(shared_state)
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
    dead_letters = dead_letters_of(config, shared_state, letter_producers, aside)
    stalls = Stalls(
        config.group_id,
        lambda: (collector.given(), collector.in_hand()),
        config.stall_report_callback,
        shared_state.wall_offset_ms,
    )
    notice(shared_state, stalls)
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
            "max.poll.interval.ms (%d) is below session.timeout.ms (%d) and counts as %d: the group waits "
            "that long for a lost member in any case",
            config.max_poll_interval_ms,
            config.session_timeout_ms,
            config.processing_timeout_ms,
        )
    engine.start()
    return core


def refuse_steps_in_children(client_state: ClientState) -> None:
    """Refuse steps, which do not enter a shell, in each child of a fork: see `fetch._steps`."""
    in_children(client_state.attention, _raise)


def _raise(attention: Attention) -> None:
    attention.up = True


def notice(client_state: ClientState, stalls: Stalls) -> None:
    """Report stalls to this listener."""
    # A weak reference: the network thread would otherwise keep an unclosed consumer from being collected.
    noticed = weakref.WeakMethod(stalls.noticed)
    client_state.on_stall = lambda event: None if (notice := noticed()) is None else notice(event)


def dead_letters_of(
    config: ConsumerConfig | ShareConsumerConfig,
    client_state: ClientState,
    letter_producers: LetterProducers,
    aside: Callable[[], Aside],
) -> DeadLetters | None:
    """Who writes bad records to dead.letter.topic; None without one."""
    if config.dead_letter_topic is None:
        return None
    # Imported here because most consumers write none.
    from kadence.consumer.fetch.dead_letters import DeadLetters

    return DeadLetters(
        config.dead_letter_topic,
        config.group_id,
        lambda: letter_producers(config),
        client_state.signal.set,
        aside(),
    )
