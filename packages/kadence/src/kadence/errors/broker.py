"""Errors that brokers answer with: a class for each code that programs often catch, `BrokerError` for others."""

from __future__ import annotations

from typing import Any

from kadence.errors.local import KafkaError
from kadence.printable import printable
from kadence.protocol import error_codes
from kadence.types import TopicPartition

__all__ = [
    "BrokerError",
    "FencedInstanceIdError",
    "GroupAuthorizationError",
    "GroupMaxSizeReachedError",
    "IllegalGenerationError",
    "InconsistentGroupProtocolError",
    "InvalidGroupIdError",
    "InvalidRegularExpressionError",
    "InvalidSessionTimeoutError",
    "InvalidTopicError",
    "LogTruncationError",
    "NotLeaderError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "for_code",
]


class BrokerError(KafkaError):
    """A broker answered with an error code.

    Attributes:
        code: Kafka's number. name: Kafka's name for it, ``UNKNOWN(n)`` for a code this version does not know.
        retriable: as Kafka defines it for the code.
    """

    code: int = error_codes.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str | None = None, *, code: int | None = None) -> None:
        self.code = type(self).code if code is None else code
        self.name: str = error_codes.name(self.code)
        self.retriable: bool = self.code in error_codes.RETRIABLE
        # Brokers write it, and it goes into logs and to terminals.
        self.message: str = printable(
            message or error_codes.MESSAGES.get(self.code, "the broker answered with an error")
        )
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
    """The partition's log does not have the offset. Polls raise it with auto.offset.reset=none, or for a range.

    Attributes:
        partition: the partition. position: the next offset that would have been read. Both are None if unknown.
    """

    code = error_codes.OFFSET_OUT_OF_RANGE

    def __init__(
        self,
        message: str | None = None,
        *,
        code: int | None = None,
        partition: TopicPartition | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.partition = partition
        self.position = position

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = super().__reduce__()
        return rebuild, arguments, {**state, "partition": self.partition, "position": self.position}


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are not in the partition's log any more (KIP-320): an unclean leader election lost them.

    Raised only with ``auto.offset.reset=none``. Call seek() with the offset at which you want to continue.

    Attributes:
        partition: the partition. position: the next offset that would have been read.
        diverging_offset: the first offset from which the log now has other records; None if it is unknown.
        leader_epoch: the leader epoch before that offset, for ``seek(partition, OffsetAndMetadata(...))``; None if
            unknown.
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
        super().__init__(message, code=code, partition=partition, position=position)
        self.diverging_offset = diverging_offset
        self.leader_epoch = leader_epoch

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = super().__reduce__()
        own = {"diverging_offset": self.diverging_offset, "leader_epoch": self.leader_epoch}
        return rebuild, arguments, {**state, **own}


class UnknownTopicOrPartitionError(BrokerError):
    """The cluster has no such topic or partition.

    Attributes:
        partitions: those that the cluster does not have, if the call named several; empty: all that it named.
    """

    code = error_codes.UNKNOWN_TOPIC_OR_PARTITION

    def __init__(
        self,
        message: str | None = None,
        *,
        code: int | None = None,
        partitions: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        super().__init__(message, code=code)
        self.partitions = partitions

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, state = super().__reduce__()
        return rebuild, arguments, {**state, "partitions": self.partitions}


class NotLeaderError(BrokerError):
    """The broker does not lead the partition."""

    code = error_codes.NOT_LEADER_OR_FOLLOWER


class InvalidTopicError(BrokerError):
    """A topic name that Kafka does not allow."""

    code = error_codes.INVALID_TOPIC_EXCEPTION


class OffsetMetadataTooLargeError(BrokerError):
    """The metadata of a committed offset is too long."""

    code = error_codes.OFFSET_METADATA_TOO_LARGE


class IllegalGenerationError(BrokerError):
    """The member's generation is not the group's current one."""

    code = error_codes.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(BrokerError):
    """This member has no assignor in common with the group's members."""

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


class TopicAuthorizationError(BrokerError):
    """This client has no permission for the operation on this topic."""

    code = error_codes.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(BrokerError):
    """This client has no permission for the operation on this group."""

    code = error_codes.GROUP_AUTHORIZATION_FAILED


class TopicAlreadyExistsError(BrokerError):
    """The topic to create exists already."""

    code = error_codes.TOPIC_ALREADY_EXISTS


class GroupMaxSizeReachedError(BrokerError):
    """The group has as many members as the broker allows."""

    code = error_codes.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(BrokerError):
    """Another process uses the same group.instance.id."""

    code = error_codes.FENCED_INSTANCE_ID


class ProducerFencedError(BrokerError):
    """Another producer took over the transactional.id, or (without transactions v2) a transaction took too long."""

    code = error_codes.PRODUCER_FENCED


class UnreleasedInstanceIdError(BrokerError):
    """Another process uses the same group.instance.id, or did until just now (KIP-848)."""

    code = error_codes.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(BrokerError):
    """The broker has no assignor of the name in group.remote.assignor (KIP-848)."""

    code = error_codes.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(BrokerError):
    """A `SubscriptionPattern` that is not valid in RE2's syntax."""

    code = error_codes.INVALID_REGULAR_EXPRESSION


class InvalidRecordStateError(BrokerError):
    """A record of a queue was acknowledged, and this consumer does not hold its lock any more (KIP-932)."""

    code = error_codes.INVALID_RECORD_STATE


_BY_CODE: dict[int, type[BrokerError]] = {
    cls.code: cls for cls in BrokerError.__subclasses__() if "code" in cls.__dict__
}


def for_code(code: int, message: str | None = None) -> BrokerError:
    """Make the error for a broker's error code. An unknown code becomes a plain `BrokerError`."""
    cls = _BY_CODE.get(code, BrokerError)
    return cls(message, code=code)
