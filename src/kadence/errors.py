"""Everything Kadence raises, in one tree.

    KafkaError
    ├── LocalError                      you, or this process
    │   ├── ConfigError                 unknown key, wrong value, contradiction (also a ValueError)
    │   ├── IllegalStateError           a call that makes no sense now
    │   │   ├── ClosedError             used after close()
    │   │   ├── ConcurrentAccessError   used from a second thread (C7)
    │   │   └── ForkedError             used in a child after fork() (C8)
    │   ├── WakeupError                 wakeup() ended the call
    │   ├── KafkaTimeoutError           the call's own deadline passed
    │   ├── SerializationError          a key or value could not be turned into, or made from, bytes
    │   │   └── RecordDeserializationError  one record's, with where it lies and its bytes
    │   ├── DeadLetterError             a bad record could not be written to the dead letter topic
    │   ├── CorruptRecordError          bytes that are not what the format promises
    │   │   └── UnsupportedRecordFormatError   magic 0 or 1, unknown codec
    │   ├── RecordTooLargeError         a batch would pass a limit (decompression bound, request size)
    │   ├── NoOffsetForPartitionError   no committed offset and auto.offset.reset=none
    │   ├── AssignorError               an assignor of your own failed; its cause is chained
    │   ├── MissingDependencyError      an extra is not installed
    │   └── FatalNetworkError           the network thread died of a bug; the cause is chained (B6)
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

All are picklable (Spark carries them between processes).
"""

from __future__ import annotations

from typing import Any

from kadence.protocol import error_codes
from kadence.types import TopicPartition

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
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "SerializationError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationError",
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


class KafkaError(Exception):
    """Root of everything Kadence raises."""

    retriable: bool = False
    """Whether the same call may succeed later without a change by you."""


class LocalError(KafkaError):
    """Something on this side: misuse, bad data, a deadline of the caller."""


class ConfigError(LocalError, ValueError):
    """A configuration key or value that cannot be used; says what was given, what is allowed, what to do."""


class IllegalStateError(LocalError):
    """The call makes no sense in the present state, e.g. seek() of a partition that is not assigned."""


class AssignorError(LocalError):
    """An object in partition.assignment.strategy raised, or gave what is no assignment; names it, and its cause."""


class ClosedError(IllegalStateError):
    """The object was used after close()."""


class ConcurrentAccessError(IllegalStateError):
    """A second thread entered an object that belongs to one thread (C7)."""


class ForkedError(IllegalStateError):
    """The object was made before fork() and is used in the child (C8)."""


class WakeupError(LocalError):
    """wakeup() ended this call, or the next one that would have blocked."""


class KafkaTimeoutError(LocalError):
    """The deadline of the call passed. Not the built-in TimeoutError, so the two cannot be confused."""

    retriable = True


class SerializationError(LocalError):
    """A key or a value could not be serialised or deserialised."""


class RecordDeserializationError(SerializationError):
    """A deserialiser refused a record; its exception is the cause. Every poll raises it until you seek past the record.

    Attributes:
        partition: where it lies. offset: its offset; ``seek(partition, offset + 1)`` passes over it.
        field: ``key`` or ``value``. record: the record with its key and value as bytes.
    """

    def __init__(
        self,
        message: str = "",
        *,
        partition: TopicPartition = TopicPartition("", -1),  # noqa: B008 - immutable
        offset: int = -1,
        field: str = "value",
        record: Any = None,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.field = field
        self.record = record


class DeadLetterError(LocalError):
    """A bad record could not be written to the dead letter topic. It was not passed over; the next poll tries again."""


class CorruptRecordError(LocalError):
    """Bytes that contradict the record format: bad CRC, truncated batch, lengths that lie."""


class UnsupportedRecordFormatError(CorruptRecordError):
    """A format that Kadence does not read: message formats 0 and 1, an unknown codec."""


class RecordTooLargeError(LocalError):
    """A batch or a request would pass a limit."""


class NoOffsetForPartitionError(LocalError):
    """No committed offset, and auto.offset.reset=none."""


class MissingDependencyError(LocalError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


class FatalNetworkError(LocalError):
    """The network thread ended with a bug; its exception is the cause. close() still works (B6)."""


class TransportError(KafkaError):
    """The way to a broker, not its answer."""

    retriable = True


class ConnectError(TransportError):
    """No connection: the message names address, step (DNS, TCP, TLS) and cause."""


class DisconnectedError(TransportError):
    """The connection was lost while a request was in flight; the broker may or may not have served it."""


class RequestTimedOutError(TransportError):
    """No answer within the request's time."""


class MalformedMessageError(TransportError):
    """Bytes that are no Kafka message: truncated, a length that lies, junk after the end."""

    retriable = False


class UnsupportedVersionError(TransportError):
    """The broker and we share no version of this API, or the version lacks something that was asked for."""

    retriable = False


class AuthenticationError(TransportError):
    """The broker refused our credentials or certificate."""

    retriable = False


class BrokerError(KafkaError):
    """A broker's error code.

    Attributes:
        code: Kafka's number. name: Kafka's name for it, ``UNKNOWN(n)`` for a code this version does not know.
        retriable: as Kafka defines it for the code.
    """

    code: int = error_codes.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None, *, code: int | None = None) -> None:
        self.code = type(self).code if code is None else code
        self.name = error_codes.name(self.code)
        self.retriable = self.code in error_codes.RETRIABLE
        self.message = message or error_codes.MESSAGES.get(self.code, "the broker answered with an error")
        super().__init__(f"{self.name} ({self.code}): {self.message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild,
            (type(self), self.message, self.code),
            {"__notes__": getattr(self, "__notes__", [])},
        )


def _rebuild(cls: type[BrokerError], message: str, code: int) -> BrokerError:
    return cls(message, code=code)


class OffsetOutOfRangeError(BrokerError):
    """The position is not in the partition's log, and no reset policy says where to go."""

    code = error_codes.OFFSET_OUT_OF_RANGE


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are not in the partition's log any more (KIP-320): an unclean leader election lost them.

    Raised with ``auto.offset.reset=none`` only; seek() to where you want to go on.

    Attributes:
        partition: which one. position: the next offset that would have been read.
        diverging_offset: the first offset at which the log is another one now; None when the broker cannot tell.
        leader_epoch: the epoch before it, for ``seek(partition, OffsetAndMetadata(...))``; None when unknown.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        code: int | None = None,
        partition: TopicPartition | None = None,
        position: int | None = None,
        diverging_offset: int | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.partition = partition
        self.position = position
        self.diverging_offset = diverging_offset
        self.leader_epoch = leader_epoch

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = super().__reduce__()
        told = ("partition", "position", "diverging_offset", "leader_epoch")
        return rebuild, arguments, {**state, **{name: getattr(self, name) for name in told}}


class UnknownTopicOrPartitionError(BrokerError):
    """No such topic or partition on the cluster."""

    code = error_codes.UNKNOWN_TOPIC_OR_PARTITION


class NotLeaderError(BrokerError):
    """The broker does not lead the partition."""

    code = error_codes.NOT_LEADER_OR_FOLLOWER


class InvalidTopicError(BrokerError):
    """A topic name that Kafka does not allow."""

    code = error_codes.INVALID_TOPIC_EXCEPTION


class OffsetMetadataTooLargeError(BrokerError):
    """The note beside a committed offset is too long."""

    code = error_codes.OFFSET_METADATA_TOO_LARGE


class IllegalGenerationError(BrokerError):
    """The generation is not the group's."""

    code = error_codes.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(BrokerError):
    """The group's members share no assignor with us."""

    code = error_codes.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroupIdError(BrokerError):
    """group.id is missing or not usable."""

    code = error_codes.INVALID_GROUP_ID


class UnknownMemberIdError(BrokerError):
    """The coordinator does not know this member (any more)."""

    code = error_codes.UNKNOWN_MEMBER_ID


class InvalidSessionTimeoutError(BrokerError):
    """session.timeout.ms is outside the broker's bounds."""

    code = error_codes.INVALID_SESSION_TIMEOUT


class RebalanceInProgressError(BrokerError):
    """The group is rebalancing; poll() again, then repeat what you did."""

    code = error_codes.REBALANCE_IN_PROGRESS


class CommitFailedError(LocalError):
    """The member no longer owns what it wanted to commit: its group went on without it.

    Usually the time between polls passed max.poll.interval.ms; the records will be read again by
    whoever owns the partitions now.

    Attributes:
        partitions: those that were not committed because they moved, while all others of the call were. Empty: none
            of the call was committed.
    """

    def __init__(self, message: str = "", *, partitions: frozenset[TopicPartition] = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class TopicAuthorizationError(BrokerError):
    """Not allowed for this topic."""

    code = error_codes.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(BrokerError):
    """Not allowed for this group."""

    code = error_codes.GROUP_AUTHORIZATION_FAILED


class TopicAlreadyExistsError(BrokerError):
    """The topic exists."""

    code = error_codes.TOPIC_ALREADY_EXISTS


class GroupMaxSizeReachedError(BrokerError):
    """The group has as many members as the broker allows."""

    code = error_codes.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(BrokerError):
    """Another process uses the same group.instance.id."""

    code = error_codes.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(BrokerError):
    """Another process lives under the same group.instance.id (KIP-848, where the newcomer is the one refused)."""

    code = error_codes.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(BrokerError):
    """The broker has no assignor of the name in group.remote.assignor (KIP-848)."""

    code = error_codes.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(BrokerError):
    """A `SubscriptionPattern` that is not valid in RE2's syntax."""

    code = error_codes.INVALID_REGULAR_EXPRESSION


_BY_CODE: dict[int, type[BrokerError]] = {
    cls.code: cls for cls in BrokerError.__subclasses__() if "code" in cls.__dict__
}


def for_code(code: int, message: str | None = None) -> BrokerError:
    """The error of a broker's code; a code this version does not know becomes a plain `BrokerError`."""
    cls = _BY_CODE.get(code, BrokerError)
    return cls(message, code=code)
