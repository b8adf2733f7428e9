"""The one file that knows both sides of a share consumer: it makes their parts, and the shared state between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kadence.client.engine import Engine
from kadence.client.network_thread import NetworkClientDelegate, NetworkSide
from kadence.client.surroundings import Surroundings
from kadence.clock import Clock
from kadence.config import ShareConsumerConfig
from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer.application.client_core import Chosen
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.consumer.arming import arm_native_heartbeat
from kadence.consumer.assembly import dead_letters_of, notice, refuse_steps_in_children
from kadence.consumer.background_events import BackgroundEventHandler, Reaper
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.epoch_member import new_member_id
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.turn import Turn
from kadence.errors import KafkaError
from kadence.forked import in_children
from kadence.lazy_dataclasses import replace
from kadence.net import ConnectionConfig, NetworkClient
from kadence.share.application._marks import Marks
from kadence.share.application.bad_records import Decoding
from kadence.share.application.buffer import Buffer
from kadence.share.application.core import ShareCore
from kadence.share.application.holding import Holding, told
from kadence.share.application.polls import SharePolls
from kadence.share.application.results import Results
from kadence.share.application.stepping import Stepping
from kadence.share.measures import ShareMeasures
from kadence.share.network.dead_letters import DeadLetterLook
from kadence.share.network.manager import ShareRequestManager
from kadence.share.network.member import Assignment, ShareMembership
from kadence.share.network.processor import ShareEventProcessor
from kadence.share.share_state import ShareState
from kadence.types import GroupMetadata

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import LetterProducers

__all__ = ["core_of", "network_side"]


def network_side(config: ShareConsumerConfig, around: Surroundings) -> tuple[ShareState, Engine]:
    """The shared state of a new share consumer and the engine behind it, not yet started.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    # These are for the application side. They may refer to the consumer, and what the network thread refers to is
    # never collected.
    config = replace(config, key_deserializer=None, value_deserializer=None, stall_report_callback=None)
    measures = ShareMeasures()
    client = around.client(ConnectionConfig.of(config), measures.network)
    measures.held_bytes = client.arenas.held
    share_state = ShareState(client.wakeup, measures, around.clock, around.wall_ms, client.new_poll_wait())
    side = NetworkSide(
        "share consumer", share_state, lambda: _turn(config, around, client, share_state), client.close
    )
    return share_state, around.engine(f"{config.client_id}-network", side)


def _turn(
    config: ShareConsumerConfig, around: Surroundings, client: NetworkClient, share_state: ShareState
) -> Turn:
    clock, measures = around.clock, share_state.measures
    reaper = Reaper(lambda: None, client.trouble)
    handler = BackgroundEventHandler(share_state, reaper)
    delegate = NetworkClientDelegate(client, measures.requests)
    jobs = around.jobs(f"{config.client_id}-jobs", client.wakeup)
    metadata = MetadataManager(config, handler)
    coordinator = CoordinatorRequestManager(config.group_id, config, handler)
    coordinator.on_silent = lambda node_id, since: client.disconnect(node_id, unless_heard_since=since)
    coordinator.on_hang_up = lambda node_id: client.disconnect(node_id, ConnectionPurpose.GROUP)
    # It may be newer than our metadata: known beside the others until the next answer names all.
    coordinator.on_found = lambda node: client.set_nodes((*client.nodes(), node))
    member = ShareMembership(coordinator, metadata, config, handler, around.new_member_id or new_member_id)
    heartbeat = HeartbeatRequestManager(coordinator, member, share_state.progress, config, handler)
    measures.group.pulse = heartbeat
    if around.has_native_heartbeat:
        arm_native_heartbeat(heartbeat, client, delegate, share_state, clock)
    requests = ShareRequestManager(config, member, metadata, share_state, handler)
    dead_letters = DeadLetterLook(config, metadata)

    def assigned(now: int, assignment: Assignment) -> None:
        requests.assigned(now, assignment)
        if assignment:
            dead_letters.begin(now, member.topics)

    member.on_assignment, member.on_leaving = assigned, requests.leave
    # Kafka has no metric for the time that it took.
    member.on_rebalance = lambda now: measures.group.rebalances.record(now, 0)
    if around.has_native_heartbeat:

        def native_renewals_sent(natively: list[Request], sent_at: int) -> None:
            delegate.sent_by_others(requests, natively)
            requests.renewed_natively(natively, sent_at)

        client.on_native_renewals = native_renewals_sent
        requests.native_renewals.on_change = client.arm_native_renewal
    processor = ShareEventProcessor(member, metadata, requests, handler)
    processor.is_cut_off = client.is_cut_off

    def metadata_changed(now: int) -> None:
        del now
        client.set_nodes(metadata.cluster.nodes.values(), metadata.cluster.cluster_id)

    def rebootstrap(now: int) -> None:
        client.rebootstrap()
        coordinator.mark_unknown(now, "the known brokers are forgotten")

    metadata.on_change = metadata_changed
    metadata.on_moved = lambda nodes: client.set_nodes(
        {**{node.node_id: node for node in client.nodes()}, **nodes}.values()
    )
    metadata.on_rebootstrap = rebootstrap

    def lost(node_id: int, purpose: ConnectionPurpose, error: KafkaError) -> None:
        if purpose is ConnectionPurpose.FETCH:
            requests.disconnected(clock.now_ms(), node_id, error)

    client.on_lost = lost
    client.on_wrong_node = metadata.brokers_are_wrong
    return Turn(
        clock,
        share_state,
        delegate,
        processor,
        reaper,
        handler,
        jobs,
        member,
        (metadata, coordinator, heartbeat, member, requests, dead_letters),
        session_key="group.share.session.timeout.ms",
    )


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
    refuse_steps_in_children(shared_state)
    chosen = Chosen()
    exchange = Exchange(shared_state, clock, GroupMetadata(config.group_id or ""))
    holding = Holding(is_explicit=config.is_explicit)
    in_children(holding.marks, _refuse)
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
        config.group_id,
        holding.in_hand,
        config.stall_report_callback,
        shared_state.wall_offset_ms,
        partial(told, config.share_lock_renewal),
    )
    notice(shared_state, stalls)
    stepping = Stepping(shared_state, clock, None if decoding is None else decoding.decoder, holding.marks)
    polls = SharePolls(
        config, shared_state, clock, chosen, exchange, holding, buffer, results, stalls, stepping
    )
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


def _refuse(marks: Marks) -> None:
    # Not close(): at the fork another thread may have held what that takes.
    marks.is_open = False
