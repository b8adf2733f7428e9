"""Everything Kadence raises, in one tree.

    KafkaError
    ├── LocalError                      you, or this process
    │   ├── ConfigError                 unknown key, wrong value, contradiction (also a ValueError)
    │   ├── IllegalStateError           a call that makes no sense now
    │   │   ├── ClosedError             used after close()
    │   │   ├── ConcurrentAccessError   used from a second thread
    │   │   └── ForkedError             used in a child after fork()
    │   ├── WakeupError                 wakeup() ended the call
    │   ├── KafkaTimeoutError           the call's own deadline passed
    │   ├── SerializationError          a key or value could not be turned into, or made from, bytes
    │   │   └── RecordDeserializationError  one record's, with where it lies and its bytes
    │   ├── DeadLetterError             a bad record could not be written to the dead letter topic
    │   ├── CorruptRecordError          bytes that are not what the format promises
    │   │   └── UnsupportedRecordFormatError   magic 0 or 1, unknown codec
    │   ├── RecordTooLargeError         a batch would pass a limit (decompression bound, request size)
    │   ├── TransactionAbortedError     a record's transaction was aborted, or had failed, before it was sent
    │   ├── RowsNotWrittenError         some rows of send_arrow() were not written: which, why, and what was
    │   ├── NoOffsetForPartitionError   no committed offset and auto.offset.reset=none
    │   ├── AssignorError               an assignor of your own failed; its cause is chained
    │   ├── MissingDependencyError      an extra is not installed
    │   └── FatalNetworkError           the network thread died of a bug; the cause is chained
    ├── TransportError                  the way to a broker
    │   ├── ConnectError                DNS, TCP or TLS failed, with the step and the address
    │   ├── DisconnectedError           connection lost with requests in flight
    │   ├── RequestTimedOutError        no answer within request.timeout.ms
    │   ├── MalformedMessageError       bytes that are no Kafka message, lengths that lie
    │   ├── UnsupportedVersionError     no version in common with the broker
    │   └── AuthenticationError         SASL or TLS refused us
    └── BrokerError                     a broker's answer: code, name, retriable
        ├── one class per code that people catch (see below)
        │   └── LogTruncationError      of OffsetOutOfRangeError: records that were read are gone (KIP-320)
        └── unknown codes are BrokerError itself

All are picklable (Spark carries them between processes), and all are named by this package.
"""

from kadence.errors.base import (
    KafkaError,
)
from kadence.errors.broker import (
    BrokerError,
    FencedInstanceIdError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
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
    ClosedError,
    CommitFailedError,
    ConcurrentAccessError,
    ConfigError,
    CorruptRecordError,
    DeadLetterError,
    FatalNetworkError,
    ForkedError,
    IllegalStateError,
    KafkaTimeoutError,
    LocalError,
    MissingDependencyError,
    NoOffsetForPartitionError,
    RecordDeserializationError,
    RecordTooLargeError,
    RowsNotWrittenError,
    SerializationError,
    TransactionAbortedError,
    UnsupportedRecordFormatError,
    WakeupError,
)
from kadence.errors.transport import (
    AuthenticationError,
    ConnectError,
    DisconnectedError,
    MalformedMessageError,
    RequestTimedOutError,
    TransportError,
    UnsupportedVersionError,
)

__all__ = [
    "AssignorError",
    "AuthenticationError",
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
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidGroupIdError",
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
    "for_code",
]

for _error in [each for each in vars().values() if isinstance(each, type)]:
    # Tracebacks and pickles name what people import, not the file that it is in.
    _error.__module__ = __name__
