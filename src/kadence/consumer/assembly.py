"""The one file that knows both sides: it makes the network side of a consumer and the border before it.

The front door gives `make` to `Consumer`, so neither side imports the other.
"""

from __future__ import annotations

from kadence.clock import SystemClock, wall_ms
from kadence.config import ConsumerConfig
from kadence.connection.request import Lane
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.measures import Measures
from kadence.consumer.managers.auto import AutoMembership
from kadence.consumer.managers.base import RequestManager
from kadence.consumer.managers.classic import ClassicMembership
from kadence.consumer.managers.commit import CommitManager
from kadence.consumer.managers.consumer_protocol import ConsumerMembership
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.fetch import FetchManager
from kadence.consumer.managers.heartbeat import HeartbeatManager
from kadence.consumer.managers.membership import Membership
from kadence.consumer.managers.metadata import MetadataManager
from kadence.consumer.managers.offsets import OffsetsManager
from kadence.consumer.managers.validation import ValidationManager
from kadence.consumer.network.delegate import Delegate
from kadence.consumer.network.jobs import JobThread
from kadence.consumer.network.processor import Processor
from kadence.consumer.network.reaper import Reaper
from kadence.consumer.network.thread import NetworkThread, Outlet, Turn
from kadence.consumer.state.subscription import Subscription
from kadence.net import ConnectionConfig, NetworkClient

__all__ = ["make"]


def make(config: ConsumerConfig) -> tuple[Border, NetworkThread]:
    """The border of a new consumer and the thread behind it, not yet started.

    The network client is made here rather than on its thread only because the border must be able to wake
    it; nothing but `wakeup` is called from outside.

    Raises:
        ConfigError: a certificate or key file that cannot be used.
    """
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
    jobs = JobThread(f"{config.client_id}-jobs", client.wakeup)
    metadata = MetadataManager(config, outlet)
    managers: list[RequestManager] = [metadata]
    membership: Membership | None = None
    coordinator: CoordinatorManager | None = None
    if config.group_id is not None:
        coordinator = CoordinatorManager(config.group_id, config, outlet)
        coordinator.on_silent = client.disconnect
        coordinator.on_hang_up = lambda node_id: client.disconnect(node_id, Lane.MAIN)
        # It may be newer than our metadata: known beside the others until the next answer names all.
        coordinator.on_found = lambda node: client.set_nodes((*client.nodes(), node))
        membership = _membership(config, coordinator, subscription, metadata, jobs, outlet)
        heartbeat = HeartbeatManager(coordinator, membership, border.progress, config, outlet)
        commits = CommitManager(coordinator, membership, metadata, config, outlet)
        managers += [coordinator, commits, heartbeat, membership]
    validation = ValidationManager(config, subscription, metadata, outlet)
    offsets = OffsetsManager(config, subscription, metadata, commits, outlet, wall_ms)
    fetch = FetchManager(config, subscription, metadata, border, client.arenas, outlet)
    border.measures.books = fetch.memory
    # In this order: what validation finds lost is looked up, and only what is good is fetched, in the same turn.
    managers += [validation, offsets, fetch]
    processor = Processor(subscription, metadata, offsets, membership, commits, outlet)

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
        Delegate(client, border.measures),
        processor,
        reaper,
        outlet,
        jobs,
        membership,
        tuple(managers),
    )


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
