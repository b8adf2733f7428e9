"""The one file that knows both sides: it makes the network side of a consumer and the border before it.

`kadence/__init__.py` passes `make` to `Consumer`, so neither side imports the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kadence.clock import Clock, SystemClock, wall_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Lane, Request
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.lateness import Lateness
from kadence.consumer.border.measures import Measures
from kadence.consumer.managers.base import RequestManager
from kadence.consumer.managers.cluster.metadata import MetadataManager
from kadence.consumer.managers.fetching.fetch import FetchManager
from kadence.consumer.managers.fetching.reasons import missing_topics
from kadence.consumer.managers.group.auto import AutoMembership
from kadence.consumer.managers.group.classic.member import ClassicMembership
from kadence.consumer.managers.group.commit import CommitManager
from kadence.consumer.managers.group.coordinator import CoordinatorManager
from kadence.consumer.managers.group.heartbeat import HeartbeatManager
from kadence.consumer.managers.group.kip848.member import ConsumerMembership, new_member_id
from kadence.consumer.managers.group.membership import Membership
from kadence.consumer.managers.positions.offsets import OffsetsManager
from kadence.consumer.managers.positions.validation import ValidationManager
from kadence.consumer.network.delegate import Delegate
from kadence.consumer.network.jobs import JobRunner, JobThread
from kadence.consumer.network.processor import Processor
from kadence.consumer.network.reaper import Reaper
from kadence.consumer.network.thread import NetworkThread, Outlet, Turn
from kadence.consumer.state.subscription import Subscription
from kadence.metrics.network import NetworkMeters
from kadence.net import ConnectionConfig, NetworkClient, pulse

__all__ = ["Surroundings", "make", "network_side"]


class Surroundings:
    """What a consumer's network side has from the machine. A simulation has its own (`kadence.testing.simulation`).

    Attributes:
        clock: the monotonic one. has_pulse: whether a native thread may send heartbeats.
    """

    clock: Clock = SystemClock()
    has_pulse: bool = pulse.AVAILABLE

    def client(self, config: ConnectionConfig, meters: NetworkMeters) -> NetworkClient:
        """The connections of one consumer."""
        return NetworkClient(config, self.clock, meters=meters)

    def jobs(self, name: str, wake: Callable[[], None]) -> JobRunner:
        """Where what may block is done."""
        return JobThread(name, wake)

    def wall_ms(self) -> int:
        """Ms since 1970."""
        return wall_ms()

    def new_member_id(self) -> str:
        """The id of a KIP-848 member."""
        return new_member_id()


_MACHINE: Final = Surroundings()


def make(config: ConsumerConfig) -> tuple[Border, NetworkThread]:
    """The border of a new consumer and the thread behind it, not yet started.

    The network client is made here rather than on its thread only because the border must be able to wake
    it; nothing but `wakeup` is called from outside.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
    border, client, turn = network_side(config, _MACHINE)
    return border, NetworkThread(f"{config.client_id}-network", border, turn, client.close)


def network_side(
    config: ConsumerConfig, surroundings: Surroundings
) -> tuple[Border, NetworkClient, Callable[[], Turn]]:
    """The border of a new consumer, its connections, and what makes its turns (on the thread that will run them).

    Raises as `make` does.
    """
    # These are for the application side. They may refer to the consumer, and what the network thread refers to is
    # never collected.
    config = replace(
        config, key_deserializer=None, value_deserializer=None, interceptors=(), stall_report_callback=None
    )
    measures = Measures()
    client = surroundings.client(ConnectionConfig.of(config), measures.network)
    measures.held_bytes = client.arenas.held
    border = Border(client.wakeup, measures, surroundings.clock, surroundings.wall_ms)
    return border, client, lambda: _turn(config, surroundings, client, border)


def _turn(config: ConsumerConfig, surroundings: Surroundings, client: NetworkClient, border: Border) -> Turn:
    clock = surroundings.clock
    subscription = Subscription()
    commits: CommitManager | None = None
    reaper = Reaper(lambda: client.trouble() or (None if commits is None else commits.trouble()))
    outlet = Outlet(border, subscription, reaper)
    delegate = Delegate(client, border.measures)
    jobs = surroundings.jobs(f"{config.client_id}-jobs", client.wakeup)
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
        membership = _membership(
            config, coordinator, subscription, metadata, jobs, outlet, surroundings.new_member_id
        )
        heartbeat = HeartbeatManager(coordinator, membership, border.progress, config, outlet)
        if surroundings.has_pulse:
            _leave_to_the_pulse(heartbeat, client, delegate, border.lateness, clock)
        commits = CommitManager(coordinator, membership, metadata, config, outlet)
        managers += [coordinator, commits, heartbeat, membership]
    validation = ValidationManager(config, subscription, metadata, outlet)
    offsets = OffsetsManager(config, subscription, metadata, commits, outlet, surroundings.wall_ms)
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
        border.missing = missing_topics(metadata.missing("subscription"))

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
    clock: Clock,
) -> None:
    """What the network thread cannot send in time the pulse sends."""

    def stood_in(requests: list[Request], sent_at: int) -> None:
        lateness.stood_in += len(requests)
        delegate.stood_in(heartbeat, requests, sent_at)
        heartbeat.stood_in(clock.now_ms(), requests, sent_at)

    client.on_stood_in = stood_in
    heartbeat.substitute.on_change = client.leave


def _membership(
    config: ConsumerConfig,
    coordinator: CoordinatorManager,
    subscription: Subscription,
    metadata: MetadataManager,
    jobs: JobRunner,
    outlet: Outlet,
    new_id: Callable[[], str],
) -> Membership:
    """The one that speaks ``group.protocol``."""

    def classic() -> ClassicMembership:
        return ClassicMembership(coordinator, subscription, metadata, config, jobs, outlet)

    def consumer(min_version: int) -> ConsumerMembership:
        return ConsumerMembership(
            coordinator, subscription, metadata, config, outlet, min_version=min_version, new_id=new_id
        )

    if config.group_protocol == "consumer":
        return consumer(0)
    if config.group_protocol == "classic":
        return classic()
    # By itself only what became final: version 0 is that of Kafka 3.7 to 3.9, which called it a preview.
    return AutoMembership(coordinator, classic(), consumer(1), config)
