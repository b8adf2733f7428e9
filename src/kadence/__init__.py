"""Kadence: a Kafka consumer whose heartbeat never misses, with its broker, producer and Spark source.

The front door: names, each loaded when it is first used. It also says who makes a consumer's network side, and the
producer of its dead letters, so that the rooms in question need not import each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.consumer.application import suppliers
from kadence.loading import load

if TYPE_CHECKING:
    from kadence.admin import Admin
    from kadence.broker import Broker
    from kadence.clock import Seconds
    from kadence.config import ConsumerConfig
    from kadence.consumer.application.callbacks import RebalanceListener
    from kadence.consumer.application.core import Engine
    from kadence.consumer.application.interceptors import Interceptor
    from kadence.consumer.application.records import Records
    from kadence.consumer.application.stall import Stall
    from kadence.consumer.application.stopping import StopOnSignals, stop_on_signals
    from kadence.consumer.assignors import Assignor, LastAssignment, MemberSubscription, RebalanceProtocol
    from kadence.consumer.async_consumer import AsyncConsumer
    from kadence.consumer.border.buffer import Border
    from kadence.consumer.border.lateness import NetworkLateness
    from kadence.consumer.border.reasons import NotFetched, NotFetchedReason
    from kadence.consumer.consumer import Consumer
    from kadence.errors import (
        BrokerError,
        CommitFailedError,
        ConfigError,
        CorruptRecordError,
        KafkaError,
        KafkaTimeoutError,
        LocalError,
        RecordDeserializationError,
        TransportError,
        WakeupError,
    )
    from kadence.metrics import MetricName
    from kadence.producer import Producer
    from kadence.records import Record
    from kadence.security import Token
    from kadence.types import (
        GroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionInfo,
        SubscriptionPattern,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "Assignor",
    "AsyncConsumer",
    "Broker",
    "BrokerError",
    "CommitFailedError",
    "ConfigError",
    "Consumer",
    "CorruptRecordError",
    "GroupMetadata",
    "Interceptor",
    "KafkaError",
    "KafkaTimeoutError",
    "LastAssignment",
    "LocalError",
    "MemberSubscription",
    "MetricName",
    "NetworkLateness",
    "Node",
    "NotFetched",
    "NotFetchedReason",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Producer",
    "RebalanceListener",
    "RebalanceProtocol",
    "Record",
    "RecordDeserializationError",
    "Records",
    "Seconds",
    "Stall",
    "StopOnSignals",
    "SubscriptionPattern",
    "Token",
    "TopicPartition",
    "TransportError",
    "WakeupError",
    "stop_on_signals",
]

_HOMES = {
    "Admin": "kadence.admin",
    "Assignor": "kadence.consumer.assignors",
    "AsyncConsumer": "kadence.consumer.async_consumer",
    "Broker": "kadence.broker",
    "BrokerError": "kadence.errors",
    "CommitFailedError": "kadence.errors",
    "ConfigError": "kadence.errors",
    "Consumer": "kadence.consumer.consumer",
    "CorruptRecordError": "kadence.errors",
    "GroupMetadata": "kadence.types",
    "Interceptor": "kadence.consumer.application.interceptors",
    "KafkaError": "kadence.errors",
    "KafkaTimeoutError": "kadence.errors",
    "LastAssignment": "kadence.consumer.assignors",
    "LocalError": "kadence.errors",
    "MemberSubscription": "kadence.consumer.assignors",
    "MetricName": "kadence.metrics",
    "NetworkLateness": "kadence.consumer.border.lateness",
    "Node": "kadence.types",
    "NotFetched": "kadence.consumer.border.reasons",
    "NotFetchedReason": "kadence.consumer.border.reasons",
    "OffsetAndMetadata": "kadence.types",
    "OffsetAndTimestamp": "kadence.types",
    "PartitionInfo": "kadence.types",
    "Producer": "kadence.producer",
    "RebalanceListener": "kadence.consumer.application.callbacks",
    "RebalanceProtocol": "kadence.consumer.assignors",
    "Record": "kadence.records",
    "RecordDeserializationError": "kadence.errors",
    "Records": "kadence.consumer.application.records",
    "Seconds": "kadence.clock",
    "Stall": "kadence.consumer.application.stall",
    "StopOnSignals": "kadence.consumer.application.stopping",
    "SubscriptionPattern": "kadence.types",
    "Token": "kadence.security",
    "TopicPartition": "kadence.types",
    "TransportError": "kadence.errors",
    "WakeupError": "kadence.errors",
    "stop_on_signals": "kadence.consumer.application.stopping",
}
"""Where each name is defined; what type checkers and editors read stands above."""

_CONSUMERS = {"AsyncConsumer", "Consumer"}
"""They bring their network side along. Loaded with the first consumer, its modules would delay the first record: beside
a thread that computes each takes a switch interval of the interpreter or two, half a second in all."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A name when it is first used, or a module such as ``kadence.errors``."""
        home = _HOMES.get(name)
        if home is not None:
            try:
                if name in _CONSUMERS:
                    load("kadence.consumer.assembly")
                module = load(home)
            except AttributeError as error:
                # Raised on, `from kadence import ...` would take it for a name that this module lacks, and hide it.
                raise ImportError(f"{home} cannot be loaded: {error}") from error
            found = globals()[name] = getattr(module, name)
            return found
        if not name.startswith("_"):
            try:
                return load(f"kadence.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"kadence.{name}":
                    raise
        raise AttributeError(f"module 'kadence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _network_side(config: ConsumerConfig) -> tuple[Border, Engine]:
    from kadence.consumer import assembly

    return assembly.make(config)


def _letter_producer(config: ConsumerConfig) -> Producer:
    from kadence.producer.dead_letters import producer_for

    return producer_for(config)


suppliers.network_side.real = _network_side
suppliers.letter_producer = _letter_producer
