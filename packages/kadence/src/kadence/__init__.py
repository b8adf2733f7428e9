"""Kadence: a Kafka consumer that stays in its group while your code works, with its broker, producer and Spark source.

All public names; each is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.loading import load
from kadence.version import VERSION

if TYPE_CHECKING:
    from kadence.admin import (
        Acl,
        AclFilter,
        Admin,
        ClusterDescription,
        ConfigChange,
        ConfigEntry,
        ConfigResource,
        ConsumerGroupDescription,
        ElectionType,
        FencedProducer,
        GroupListing,
        LogDirDescription,
        MemberDescription,
        NewTopic,
        OffsetSpec,
        Outcomes,
        ProducerState,
        ReplicaInfo,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
    )
    from kadence.admin.async_admin import AsyncAdmin
    from kadence.admin.settings import AdminSettings
    from kadence.clock import Seconds
    from kadence.consumer.application.callbacks import (
        AsyncRebalanceListener,
        CommitCallback,
        Interceptor,
        RebalanceListener,
    )
    from kadence.consumer.application.health import Health
    from kadence.consumer.application.processing import Stall
    from kadence.consumer.assignors import Assignor, LastAssignment, MemberSubscription, RebalanceProtocol
    from kadence.consumer.async_consumer import AsyncConsumer
    from kadence.consumer.client_state import NetworkLateness
    from kadence.consumer.consumer import Consumer
    from kadence.consumer.decoded_records import Records
    from kadence.consumer.events import Rebalance
    from kadence.consumer.settings import ConsumerSettings
    from kadence.consumer.shared_partition import NotFetched, NotFetchedReason
    from kadence.deserializers import Deserializer, DeserializerLike
    from kadence.errors import (
        AssignorError,
        AuthenticationError,
        BrokerError,
        ClosedError,
        CommitFailedError,
        ConcurrentAccessError,
        ConfigError,
        ConnectError,
        CorruptRecordError,
        DeadLetterError,
        DisconnectedError,
        FatalNetworkError,
        FencedInstanceIdError,
        ForkedError,
        GroupAuthorizationError,
        GroupMaxSizeReachedError,
        HandlerTimeoutError,
        IllegalGenerationError,
        IllegalStateError,
        InconsistentGroupProtocolError,
        InvalidGroupIdError,
        InvalidRecordStateError,
        InvalidRegularExpressionError,
        InvalidSessionTimeoutError,
        InvalidTopicError,
        KafkaError,
        KafkaTimeoutError,
        LocalError,
        LogTruncationError,
        MalformedMessageError,
        MissingDependencyError,
        NoOffsetForPartitionError,
        NotLeaderError,
        OffsetMetadataTooLargeError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        RebalanceInProgressError,
        RecordDeserializationError,
        RecordTooLargeError,
        RequestTimedOutError,
        RowsNotWrittenError,
        SchemaNotFoundError,
        SchemaRefusedError,
        SchemaRegistryError,
        SerializationError,
        TopicAlreadyExistsError,
        TopicAuthorizationError,
        TransactionAbortedError,
        TransportError,
        UnknownMemberIdError,
        UnknownTopicOrPartitionError,
        UnreleasedInstanceIdError,
        UnsupportedAssignorError,
        UnsupportedRecordFormatError,
        UnsupportedVersionError,
        WakeupError,
        WorkerDiedError,
        WorkerStartError,
    )
    from kadence.metrics import MetricName
    from kadence.metrics.state import StatePublisher, publish_state
    from kadence.producer import (
        ArrowDelivery,
        ArrowSummary,
        Producer,
        RecordFuture,
        RecordMetadata,
        WrittenRows,
    )
    from kadence.producer.async_producer import AsyncProducer
    from kadence.producer.settings import ProducerSettings
    from kadence.reading import read, read_batches
    from kadence.records import Record
    from kadence.security import Token
    from kadence.serializers import Serializer
    from kadence.share.acknowledgements import AcknowledgeType
    from kadence.share.application.results import AcknowledgementCallback
    from kadence.share.async_share_consumer import AsyncShareConsumer
    from kadence.share.settings import ShareConsumerSettings
    from kadence.share.share_consumer import ShareConsumer
    from kadence.stopping import StopOnSignals, stop_on_signals
    from kadence.types import (
        GroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionInfo,
        SubscriptionPattern,
        TopicPartition,
    )
    from kadence.work import Context, ProducerRecord, Retry, Totals, Work
    from kadence_broker import Broker

__version__ = VERSION

__all__ = [
    "AcknowledgeType",
    "AcknowledgementCallback",
    "Acl",
    "AclFilter",
    "Admin",
    "AdminSettings",
    "ArrowDelivery",
    "ArrowSummary",
    "Assignor",
    "AssignorError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncRebalanceListener",
    "AsyncShareConsumer",
    "AuthenticationError",
    "Broker",
    "BrokerError",
    "ClosedError",
    "ClusterDescription",
    "CommitCallback",
    "CommitFailedError",
    "ConcurrentAccessError",
    "ConfigChange",
    "ConfigEntry",
    "ConfigError",
    "ConfigResource",
    "ConnectError",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerSettings",
    "Context",
    "CorruptRecordError",
    "DeadLetterError",
    "Deserializer",
    "DeserializerLike",
    "DisconnectedError",
    "ElectionType",
    "FatalNetworkError",
    "FencedInstanceIdError",
    "FencedProducer",
    "ForkedError",
    "GroupAuthorizationError",
    "GroupListing",
    "GroupMaxSizeReachedError",
    "GroupMetadata",
    "HandlerTimeoutError",
    "Health",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "Interceptor",
    "InvalidGroupIdError",
    "InvalidRecordStateError",
    "InvalidRegularExpressionError",
    "InvalidSessionTimeoutError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "LastAssignment",
    "LocalError",
    "LogDirDescription",
    "LogTruncationError",
    "MalformedMessageError",
    "MemberDescription",
    "MemberSubscription",
    "MetricName",
    "MissingDependencyError",
    "NetworkLateness",
    "NewTopic",
    "NoOffsetForPartitionError",
    "Node",
    "NotFetched",
    "NotFetchedReason",
    "NotLeaderError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "Outcomes",
    "PartitionInfo",
    "Producer",
    "ProducerFencedError",
    "ProducerRecord",
    "ProducerSettings",
    "ProducerState",
    "Rebalance",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RebalanceProtocol",
    "Record",
    "RecordDeserializationError",
    "RecordFuture",
    "RecordMetadata",
    "RecordTooLargeError",
    "Records",
    "ReplicaInfo",
    "RequestTimedOutError",
    "Retry",
    "RowsNotWrittenError",
    "SchemaNotFoundError",
    "SchemaRefusedError",
    "SchemaRegistryError",
    "Seconds",
    "SerializationError",
    "Serializer",
    "ShareConsumer",
    "ShareConsumerSettings",
    "Stall",
    "StatePublisher",
    "StopOnSignals",
    "SubscriptionPattern",
    "Token",
    "TopicAlreadyExistsError",
    "TopicAuthorizationError",
    "TopicDescription",
    "TopicPartition",
    "Totals",
    "TransactionAbortedError",
    "TransactionDescription",
    "TransactionListing",
    "TransportError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedRecordFormatError",
    "UnsupportedVersionError",
    "WakeupError",
    "Work",
    "WorkerDiedError",
    "WorkerStartError",
    "WrittenRows",
    "publish_state",
    "read",
    "read_batches",
    "stop_on_signals",
]

_HOMES = {
    "AcknowledgeType": "kadence.share.acknowledgements",
    "AcknowledgementCallback": "kadence.share.application.results",
    "Acl": "kadence.admin",
    "AclFilter": "kadence.admin",
    "Admin": "kadence.admin",
    "AdminSettings": "kadence.admin.settings",
    "ArrowDelivery": "kadence.producer",
    "ArrowSummary": "kadence.producer",
    "Assignor": "kadence.consumer.assignors",
    "AssignorError": "kadence.errors",
    "AsyncAdmin": "kadence.admin.async_admin",
    "AsyncConsumer": "kadence.consumer.async_consumer",
    "AsyncProducer": "kadence.producer.async_producer",
    "AsyncRebalanceListener": "kadence.consumer.application.callbacks",
    "AsyncShareConsumer": "kadence.share.async_share_consumer",
    "AuthenticationError": "kadence.errors",
    "Broker": "kadence_broker",
    "BrokerError": "kadence.errors",
    "ClosedError": "kadence.errors",
    "ClusterDescription": "kadence.admin",
    "CommitCallback": "kadence.consumer.application.callbacks",
    "CommitFailedError": "kadence.errors",
    "ConcurrentAccessError": "kadence.errors",
    "ConfigChange": "kadence.admin",
    "ConfigEntry": "kadence.admin",
    "ConfigError": "kadence.errors",
    "ConfigResource": "kadence.admin",
    "ConnectError": "kadence.errors",
    "Consumer": "kadence.consumer.consumer",
    "ConsumerGroupDescription": "kadence.admin",
    "ConsumerSettings": "kadence.consumer.settings",
    "Context": "kadence.work",
    "CorruptRecordError": "kadence.errors",
    "DeadLetterError": "kadence.errors",
    "Deserializer": "kadence.deserializers",
    "DeserializerLike": "kadence.deserializers",
    "DisconnectedError": "kadence.errors",
    "ElectionType": "kadence.admin",
    "FatalNetworkError": "kadence.errors",
    "FencedInstanceIdError": "kadence.errors",
    "FencedProducer": "kadence.admin",
    "ForkedError": "kadence.errors",
    "GroupAuthorizationError": "kadence.errors",
    "GroupListing": "kadence.admin",
    "GroupMaxSizeReachedError": "kadence.errors",
    "GroupMetadata": "kadence.types",
    "HandlerTimeoutError": "kadence.errors",
    "Health": "kadence.consumer.application.health",
    "IllegalGenerationError": "kadence.errors",
    "IllegalStateError": "kadence.errors",
    "InconsistentGroupProtocolError": "kadence.errors",
    "Interceptor": "kadence.consumer.application.callbacks",
    "InvalidGroupIdError": "kadence.errors",
    "InvalidRecordStateError": "kadence.errors",
    "InvalidRegularExpressionError": "kadence.errors",
    "InvalidSessionTimeoutError": "kadence.errors",
    "InvalidTopicError": "kadence.errors",
    "KafkaError": "kadence.errors",
    "KafkaTimeoutError": "kadence.errors",
    "LastAssignment": "kadence.consumer.assignors",
    "LocalError": "kadence.errors",
    "LogDirDescription": "kadence.admin",
    "LogTruncationError": "kadence.errors",
    "MalformedMessageError": "kadence.errors",
    "MemberDescription": "kadence.admin",
    "MemberSubscription": "kadence.consumer.assignors",
    "MetricName": "kadence.metrics",
    "MissingDependencyError": "kadence.errors",
    "NetworkLateness": "kadence.consumer.client_state",
    "NewTopic": "kadence.admin",
    "NoOffsetForPartitionError": "kadence.errors",
    "Node": "kadence.types",
    "NotFetched": "kadence.consumer.shared_partition",
    "NotFetchedReason": "kadence.consumer.shared_partition",
    "NotLeaderError": "kadence.errors",
    "OffsetAndMetadata": "kadence.types",
    "OffsetAndTimestamp": "kadence.types",
    "OffsetMetadataTooLargeError": "kadence.errors",
    "OffsetOutOfRangeError": "kadence.errors",
    "OffsetSpec": "kadence.admin",
    "Outcomes": "kadence.admin",
    "PartitionInfo": "kadence.types",
    "Producer": "kadence.producer",
    "ProducerFencedError": "kadence.errors",
    "ProducerRecord": "kadence.work",
    "ProducerSettings": "kadence.producer.settings",
    "ProducerState": "kadence.admin",
    "Rebalance": "kadence.consumer.events",
    "RebalanceInProgressError": "kadence.errors",
    "RebalanceListener": "kadence.consumer.application.callbacks",
    "RebalanceProtocol": "kadence.consumer.assignors",
    "Record": "kadence.records",
    "RecordDeserializationError": "kadence.errors",
    "RecordFuture": "kadence.producer",
    "RecordMetadata": "kadence.producer",
    "RecordTooLargeError": "kadence.errors",
    "Records": "kadence.consumer.decoded_records",
    "ReplicaInfo": "kadence.admin",
    "RequestTimedOutError": "kadence.errors",
    "Retry": "kadence.work",
    "RowsNotWrittenError": "kadence.errors",
    "SchemaNotFoundError": "kadence.errors",
    "SchemaRefusedError": "kadence.errors",
    "SchemaRegistryError": "kadence.errors",
    "Seconds": "kadence.clock",
    "SerializationError": "kadence.errors",
    "Serializer": "kadence.serializers",
    "ShareConsumer": "kadence.share.share_consumer",
    "ShareConsumerSettings": "kadence.share.settings",
    "Stall": "kadence.consumer.application.processing",
    "StatePublisher": "kadence.metrics.state",
    "StopOnSignals": "kadence.stopping",
    "SubscriptionPattern": "kadence.types",
    "Token": "kadence.security",
    "TopicAlreadyExistsError": "kadence.errors",
    "TopicAuthorizationError": "kadence.errors",
    "TopicDescription": "kadence.admin",
    "TopicPartition": "kadence.types",
    "Totals": "kadence.work",
    "TransactionAbortedError": "kadence.errors",
    "TransactionDescription": "kadence.admin",
    "TransactionListing": "kadence.admin",
    "TransportError": "kadence.errors",
    "UnknownMemberIdError": "kadence.errors",
    "UnknownTopicOrPartitionError": "kadence.errors",
    "UnreleasedInstanceIdError": "kadence.errors",
    "UnsupportedAssignorError": "kadence.errors",
    "UnsupportedRecordFormatError": "kadence.errors",
    "UnsupportedVersionError": "kadence.errors",
    "WakeupError": "kadence.errors",
    "Work": "kadence.work",
    "WorkerDiedError": "kadence.errors",
    "WorkerStartError": "kadence.errors",
    "WrittenRows": "kadence.producer",
    "publish_state": "kadence.metrics.state",
    "read": "kadence.reading",
    "read_batches": "kadence.reading",
    "stop_on_signals": "kadence.stopping",
}
"""Where each name is defined; what type checkers and editors read stands above."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A name when it is first used, or a module such as ``kadence.errors``."""
        home = _HOMES.get(name)
        if home is not None:
            try:
                module = load(home)
            except ModuleNotFoundError as error:
                from kadence.parts import missing

                if told := missing(error):
                    raise told from error
                raise
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
