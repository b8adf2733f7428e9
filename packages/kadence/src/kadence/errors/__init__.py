"""All errors that Kadence raises, in one tree.

    KafkaError
    ├── LocalError                      misuse, bad data, or an error in this process
    │   ├── ConfigError                 unknown key, wrong value, contradiction (also a ValueError)
    │   ├── IllegalStateError           a call that is not possible in the present state
    │   │   ├── ClosedError             used after close()
    │   │   ├── ConcurrentAccessError   used from a second thread
    │   │   └── ForkedError             used in a child after fork()
    │   ├── WakeupError                 wakeup() ended the call
    │   ├── KafkaTimeoutError           the call did not finish within its timeout
    │   ├── HandlerTimeoutError         a handler of process() took longer than its timeout
    │   ├── WorkerDiedError             a process that ran a handler of process() has ended
    │   ├── WorkerStartError            a process for handlers of process() could not import them
    │   ├── SerializationError          a key or value could not be turned into, or made from, bytes
    │   │   ├── RecordDeserializationError  for one record, with its partition, offset and bytes
    │   │   ├── SchemaNotFoundError     the schema registry has no such schema, subject or version
    │   │   └── SchemaRefusedError      the schema registry does not take a schema
    │   ├── DeadLetterError             a bad record could not be written to the dead letter topic
    │   ├── CorruptRecordError          bytes that do not follow the record format
    │   │   └── UnsupportedRecordFormatError   message format 0 or 1, unknown compression
    │   ├── RecordTooLargeError         a batch would exceed a limit (decompressed size, request size)
    │   ├── TransactionAbortedError     its transaction was aborted, or failed, before it was sent
    │   ├── RowsNotWrittenError         some rows of send_arrow() were not written: which, why, and what was
    │   ├── NoOffsetForPartitionError   no committed offset and auto.offset.reset=none
    │   ├── AssignorError               an assignor of your own failed; its cause is chained
    │   ├── MissingDependencyError      an extra is not installed
    │   ├── BootstrapResolutionError    no name in bootstrap.servers could be resolved in time (KIP-909)
    │   └── FatalNetworkError           a bug ended the network thread; the cause is chained
    ├── TransportError                  the connection to a broker, or a request, failed
    │   ├── ConnectError                DNS, TCP or TLS failed, with the step and the address
    │   ├── DisconnectedError           connection lost with requests in flight
    │   ├── RequestTimedOutError        no answer within request.timeout.ms
    │   ├── MalformedMessageError       bytes that are not a Kafka message
    │   ├── UnsupportedVersionError     no version in common with the broker
    │   ├── AuthenticationError         the broker refused the SASL login or the certificate
    │   └── SchemaRegistryError         the schema registry did not answer as a registry does
    └── BrokerError                     a broker's answer: code, name, retriable
        ├── one class per code that people catch (see below)
        │   └── LogTruncationError      of OffsetOutOfRangeError: records that were read are gone (KIP-320)
        └── unknown codes are BrokerError itself

All are picklable, and can be imported from this package.
"""

from kadence.errors.broker import (
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRecordStateError,
    InvalidRegularExpressionError,
    InvalidSessionTimeoutError,
    InvalidTopicError,
    LogTruncationError,
    NotLeaderError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    RebalanceInProgressError,
    TopicAlreadyExistsError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    for_code,
)
from kadence.errors.local import (
    AssignorError,
    AuthenticationError,
    BootstrapResolutionError,
    ClosedError,
    CommitFailedError,
    ConcurrentAccessError,
    ConfigError,
    ConnectError,
    CorruptRecordError,
    DeadLetterError,
    DisconnectedError,
    FatalNetworkError,
    ForkedError,
    HandlerTimeoutError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    LocalError,
    MalformedMessageError,
    MissingDependencyError,
    NoOffsetForPartitionError,
    RecordDeserializationError,
    RecordTooLargeError,
    RequestTimedOutError,
    RowsNotWrittenError,
    SchemaNotFoundError,
    SchemaRefusedError,
    SchemaRegistryError,
    SerializationError,
    TransactionAbortedError,
    TransportError,
    UnsupportedRecordFormatError,
    UnsupportedVersionError,
    WakeupError,
    WorkerDiedError,
    WorkerStartError,
)

__all__ = [
    "AssignorError",
    "AuthenticationError",
    "BootstrapResolutionError",
    "BrokerError",
    "ClosedError",
    "CommitFailedError",
    "ConcurrentAccessError",
    "ConfigError",
    "ConnectError",
    "CorruptRecordError",
    "DeadLetterError",
    "DisconnectedError",
    "FatalNetworkError",
    "FencedInstanceIdError",
    "ForkedError",
    "GroupAuthorizationError",
    "GroupMaxSizeReachedError",
    "HandlerTimeoutError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidGroupIdError",
    "InvalidRecordStateError",
    "InvalidRegularExpressionError",
    "InvalidSessionTimeoutError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "LocalError",
    "LogTruncationError",
    "MalformedMessageError",
    "MissingDependencyError",
    "NoOffsetForPartitionError",
    "NotLeaderError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "RowsNotWrittenError",
    "SchemaNotFoundError",
    "SchemaRefusedError",
    "SchemaRegistryError",
    "SerializationError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationError",
    "TransactionAbortedError",
    "TransportError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedRecordFormatError",
    "UnsupportedVersionError",
    "WakeupError",
    "WorkerDiedError",
    "WorkerStartError",
    "for_code",
]

for _error in [each for each in vars().values() if isinstance(each, type)]:
    # Tracebacks and pickles name what people import, not the file that it is in.
    _error.__module__ = __name__
