"""Kadence: a Kafka consumer whose heartbeat never misses, with its broker, producer and Spark source.

The front door: names only. The one thing it does is to give both consumers their network side, so that the
application side of the library never imports the network side.
"""

from kadence import outbox
from kadence.admin import Admin
from kadence.broker import Broker
from kadence.clock import Seconds
from kadence.consumer import assembly
from kadence.consumer.assignors import Assignor, LastAssignment, MemberSubscription, RebalanceProtocol
from kadence.consumer.async_consumer import AsyncConsumer
from kadence.consumer.border.lateness import NetworkLateness
from kadence.consumer.border.reasons import NotFetched, NotFetchedReason
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.consumer import Consumer
from kadence.consumer.interceptors import Interceptor
from kadence.consumer.records import Records
from kadence.consumer.stall import Stall
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

Consumer._engines = AsyncConsumer._engines = staticmethod(assembly.make)
Consumer._outboxes = AsyncConsumer._outboxes = staticmethod(outbox.make)

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
    "SubscriptionPattern",
    "Token",
    "TopicPartition",
    "TransportError",
    "WakeupError",
]
