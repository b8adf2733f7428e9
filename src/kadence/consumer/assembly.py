"""The one file that knows both sides: it makes the network side of a consumer and the border before it.

The front door gives `make` to `Consumer`, so neither side imports the other.
"""

from __future__ import annotations

from dataclasses import replace

from kadence.clock import SystemClock, wall_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Lane, Request
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.lateness import Lateness
from kadence.consumer.border.measures import Measures
from kadence.consumer.managers.base import RequestManager
from kadence.consumer.managers.cluster.metadata import MetadataManager
from kadence.consumer.managers.fetching.fetch import FetchManager
from kadence.consumer.managers.group.auto import AutoMembership
from kadence.consumer.managers.group.classic.member import ClassicMembership
from kadence.consumer.managers.group.commit import CommitManager
from kadence.consumer.managers.group.coordinator import CoordinatorManager
from kadence.consumer.managers.group.heartbeat import HeartbeatManager
from kadence.consumer.managers.group.kip848.member import ConsumerMembership
from kadence.consumer.managers.group.membership import Membership
from kadence.consumer.managers.positions.offsets import OffsetsManager
from kadence.consumer.managers.positions.validation import ValidationManager
from kadence.consumer.network.delegate import Delegate
from kadence.consumer.network.jobs import JobThread
from kadence.consumer.network.processor import Processor
from kadence.consumer.network.reaper import Reaper
from kadence.consumer.network.thread import NetworkThread, Outlet, Turn
from kadence.consumer.state.subscription import Subscription
from kadence.net import ConnectionConfig, NetworkClient, pulse

__all__ = ["make"]


def make(config: ConsumerConfig) -> tuple[Border, NetworkThread]:
    """The border of a new consumer and the thread behind it, not yet started.

    The network client is made here rather than on its thread only because the border must be able to wake
    it; nothing but `wakeup` is called from outside.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    # These are for the application side. They may refer to the consumer, and what the network thread refers to is
    # never collected.
    config = replace(
        config, key_deserializer=None, value_deserializer=None, interceptors=(), stall_report_callback=None
    )
    clock = SystemClock()
    measures = Measures()
    client = NetworkClient(ConnectionConfig.of(config), clock, meters=measures.network)
    measures.held_bytes = client.arenas.held
    border = Border(client.wakeup, measures, clock)
    thread = NetworkThread(
        f"{config.client_id}-network", border, lambda: _turn(config, clock, client, border), client.close
    )
    return border, thread


def _turn(config: ConsumerConfig, clock: SystemClock, client: NetworkClient, border: Border) -> Turn:
    subscription = Subscription()
    commits: CommitManager | None = None
    reaper = Reaper(lambda: client.trouble() or (None if commits is None else commits.trouble()))
    outlet = Outlet(border, subscription, reaper)
    delegate = Delegate(client, border.measures)
    jobs = JobThread(f"{config.client_id}-jobs", client.wakeup)
    metadata = MetadataManager(config, outlet)
    managers: list[RequestManager] = [metadata]
    membership: Membership | None = None
    coordinator: CoordinatorManager | None = None
    if config.group_id is not None:
        coordinator = CoordinatorManager(config.group_id, config, outlet)
        coordinator.on_silent = lambda node_id, since: client.disconnect(node_id, unless_heard_since=since)
        coordinator.on_hang_up = lambda node_id: client.disconnect(node_id, Lane.GROUP)
        # It may be newer than our metadata: known beside the others until the next answer names all.
        coordinator.on_found = lambda node: client.set_nodes((*client.nodes(), node))
        membership = _membership(config, coordinator, subscription, metadata, jobs, outlet)
        heartbeat = HeartbeatManager(coordinator, membership, border.progress, config, outlet)
        _leave_to_the_pulse(heartbeat, client, delegate, border.lateness, clock)
        commits = CommitManager(coordinator, membership, metadata, config, outlet)
        managers += [coordinator, commits, heartbeat, membership]
    validation = ValidationManager(config, subscription, metadata, outlet)
    offsets = OffsetsManager(config, subscription, metadata, commits, outlet, wall_ms)
    reaper.missing = offsets.missing
    fetch = FetchManager(config, subscription, metadata, border, client.arenas, outlet)
    border.measures.books = fetch.memory
    delegate.loner = fetch
    # In this order: what validation finds lost is looked up, and only what is good is fetched, in the same turn.
    managers += [validation, offsets, fetch]
    processor = Processor(subscription, metadata, offsets, membership, commits, outlet)
    processor.is_cut_off = client.is_cut_off
    if commits is not None:
        commits.is_cut_off = client.is_cut_off

    def metadata_changed(now: int) -> None:
        client.set_nodes(metadata.cluster.nodes.values())
        processor.topics_changed(now)

    def rebootstrap(now: int) -> None:
        client.rebootstrap()
        if coordinator is not None:
            coordinator.mark_unknown(now, "the known brokers are forgotten")

    metadata.on_change = metadata_changed
    metadata.on_moved = lambda nodes: client.set_nodes(
        {**{node.node_id: node for node in client.nodes()}, **nodes}.values()
    )
    metadata.on_rebootstrap = rebootstrap
    return Turn(
        clock,
        border,
        delegate,
        processor,
        reaper,
        outlet,
        jobs,
        membership,
        tuple(managers),
        fetch,
    )


def _leave_to_the_pulse(
    heartbeat: HeartbeatManager,
    client: NetworkClient,
    delegate: Delegate,
    lateness: Lateness,
    clock: SystemClock,
) -> None:
    """What the network thread cannot send in time the pulse sends, where there is one."""

    def stood_in(requests: list[Request], sent_at: int) -> None:
        lateness.stood_in += len(requests)
        delegate.stood_in(heartbeat, requests, sent_at)
        heartbeat.stood_in(clock.now_ms(), requests, sent_at)

    if pulse.AVAILABLE:
        client.on_stood_in = stood_in
        heartbeat.substitute.on_change = client.leave


def _membership(
    config: ConsumerConfig,
    coordinator: CoordinatorManager,
    subscription: Subscription,
    metadata: MetadataManager,
    jobs: JobThread,
    outlet: Outlet,
) -> Membership:
    """The one that speaks ``group.protocol``."""

    def classic() -> ClassicMembership:
        return ClassicMembership(coordinator, subscription, metadata, config, jobs, outlet)

    def consumer(min_version: int) -> ConsumerMembership:
        return ConsumerMembership(
            coordinator, subscription, metadata, config, outlet, min_version=min_version
        )

    if config.group_protocol == "consumer":
        return consumer(0)
    if config.group_protocol == "classic":
        return classic()
    # By itself only what became final: version 0 is that of Kafka 3.7 to 3.9, which called it a preview.
    return AutoMembership(coordinator, classic(), consumer(1), config)
