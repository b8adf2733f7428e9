"""The base of all errors, and those that are not a broker's answer: of the transport, and of the client itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kadence.types import TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "AnswerPendingError",
    "AssignorError",
    "AuthenticationError",
    "BootstrapResolutionError",
    "ClosedError",
    "CommitFailedError",
    "ConcurrentAccessError",
    "ConfigError",
    "ConnectError",
    "CorruptRecordError",
    "DeadLetterError",
    "DisconnectedError",
    "FatalNetworkError",
    "ForkedError",
    "HandlerTimeoutError",
    "IllegalStateError",
    "KafkaError",
    "KafkaTimeoutError",
    "LocalError",
    "MalformedMessageError",
    "MissingDependencyError",
    "NoOffsetForPartitionError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "RowsNotWrittenError",
    "SchemaNotFoundError",
    "SchemaRefusedError",
    "SchemaRegistryError",
    "SerializationError",
    "TransactionAbortedError",
    "TransportError",
    "UnsupportedRecordFormatError",
    "UnsupportedVersionError",
    "WakeupError",
    "WorkerDiedError",
    "WorkerStartError",
]


class KafkaError(Exception):
    """The base class of Kadence's errors. Arguments of a wrong type or value mostly raise TypeError or ValueError."""

    retriable: bool = False
    """Whether the same call may succeed later without any change to the program or the cluster's settings."""


class TransportError(KafkaError):
    """A request or its answer was lost, or the connection to a broker failed."""

    retriable = True


class ConnectError(TransportError):
    """The client could not connect to a broker.

    The message names the address, the cause, and the step that failed (such as name look-up or TLS handshake), unless
    it is TCP.
    """


class DisconnectedError(TransportError):
    """The connection was lost before a request was answered. The broker may or may not have carried it out."""


class RequestTimedOutError(TransportError):
    """A broker did not answer a request within request.timeout.ms."""


class MalformedMessageError(TransportError):
    """The received bytes are not a Kafka message: truncated, with a wrong length, or with extra bytes at the end."""

    retriable = False


class UnsupportedVersionError(TransportError):
    """The broker and this client support no common version of an API, or that version lacks a requested feature."""

    retriable = False


class AuthenticationError(TransportError):
    """The broker refused this client's credentials or certificate, or the client got no token or ticket."""

    retriable = False


class LocalError(KafkaError):
    """An error of the client itself: misuse, bad data, a call that took too long."""


class ConfigError(LocalError, ValueError):
    """A configuration key, a value or an argument cannot be used. The message says what to change.

    Attributes:
        key: the key or option that is wrong, as its documentation spells it; the first, if several are; None: the
            mistake is not that of one key.
    """

    def __init__(self, text: str = "", *, key: str | None = None) -> None:
        super().__init__(text)
        self.key = key


class IllegalStateError(LocalError):
    """The call makes no sense in the present state, e.g. seek() of a partition that is not assigned."""


class AssignorError(LocalError):
    """An assignor of your own raised, or returned an invalid assignment.

    The message names the assignor and the reason.
    """


class ClosedError(IllegalStateError):
    """The client is closed or being closed, or stop() ended the call."""


class ConcurrentAccessError(IllegalStateError):
    """A second thread used a consumer, or an asyncio client was used on another event loop or polled by two tasks."""


class ForkedError(IllegalStateError):
    """The client was made before fork(), and is used in the child process."""


class WakeupError(LocalError):
    """wakeup() ended this call, which was waiting or was about to wait."""


class KafkaTimeoutError(LocalError):
    """The call did not finish within its timeout. It is not a subclass of the built-in TimeoutError."""

    retriable = True


class HandlerTimeoutError(LocalError, TimeoutError):
    """A handler of `Consumer.process` took longer than ``timeout``, and was cancelled or killed: a failed attempt.

    It is a built-in TimeoutError as well: with ``Retry(on=(TimeoutError,))`` the record is tried again.
    """


class WorkerDiedError(LocalError):
    """A process in which a handler of `Consumer.process` ran has died: a failed attempt of its record."""


class WorkerStartError(LocalError):
    """A process for handlers of `Consumer.process` could not import the program or the handler's module in time.

    That does not count as an attempt of a record, and ends `Consumer.process`.
    """


class SerializationError(LocalError):
    """A key or a value could not be serialised or deserialised."""


class RecordDeserializationError(SerializationError):
    """A deserialiser refused a record; its exception is the cause. Polls of a `Consumer` raise it until you seek.

    Attributes:
        partition: the record's partition. offset: its offset; ``seek(partition, offset + 1)`` skips the record.
        field: ``key`` or ``value``. record: the record with its key and value as bytes; None: it was read as a table.
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
    """The dead letter record of a record could not be written. The record is not skipped: the next poll tries again.

    `Consumer.process` raises this only if the topic can never take the dead letter record; the record is not done then.
    """


class CorruptRecordError(LocalError):
    """Fetched bytes do not follow the record format: a wrong checksum, a truncated batch, wrong lengths.

    A record with more than 5,000 headers counts as such.
    """


class UnsupportedRecordFormatError(CorruptRecordError):
    """The records have a format that Kadence does not read: message format 0 or 1, or an unknown compression."""


class RecordTooLargeError(LocalError):
    """A record, a batch or a request exceeds a size limit, which the message names."""


class RowsNotWrittenError(LocalError):
    """Some rows of `Producer.send_arrow` were not written; the cause is the error of the first of them.

    Attributes:
        failed: the numbers of the rows that were not written (from 0), by partition. written: an `ArrowSummary` of the
            others.
        retriable: whether all of them failed with a retriable error.
    """

    def __init__(
        self,
        message: str = "",
        *,
        failed: Mapping[TopicPartition, Sequence[int]] = MappingProxyType({}),
        written: Any = None,
    ) -> None:
        super().__init__(message)
        self.failed: dict[TopicPartition, Sequence[int]] = dict(failed)
        self.written = written


class NoOffsetForPartitionError(LocalError):
    """A partition has no committed offset, and auto.offset.reset=none."""


class MissingDependencyError(LocalError, ImportError):
    """Something that the call needs is missing, such as an extra of Kadence. The message names it."""


class FatalNetworkError(LocalError):
    """A bug in Kadence ended the network thread; its exception is the cause. close() still works."""


class BootstrapResolutionError(LocalError):
    """No name in bootstrap.servers could be resolved within bootstrap.resolve.timeout.ms. The client is finished."""


class TransactionAbortedError(LocalError):
    """A record was not written because its transaction was aborted or had failed before."""


class CommitFailedError(LocalError):
    """The commit failed: the group has removed this member, or the partitions are not assigned to it (any more).

    Usually the time between two polls was longer than max.poll.interval.ms. The partitions' new owners read the
    records again. With `assign` it means that the group has members.

    Attributes:
        partitions: those that were not committed because this member does not have them; the others of the call
            were committed. Empty: none was committed.
    """

    def __init__(self, message: str = "", *, partitions: frozenset[TopicPartition] = frozenset()) -> None:
        super().__init__(message)
        self.partitions = partitions


class SchemaRegistryError(TransportError):
    """The schema registry could not be reached, or did not answer as a registry does, also after retries.

    If a deserialiser raises it, the record is not treated as bad (``deserialization.errors``): the poll raises the
    error, and the next poll tries again.
    """


class SchemaNotFoundError(SerializationError):
    """The schema registry says that it has no such schema, subject or version, or has one of another type."""


class SchemaRefusedError(SerializationError):
    """The schema registry refused a schema: it cannot read it, or the schema is not compatible with earlier ones."""


class AnswerPendingError(BaseException):
    """A serialiser or deserialiser needs an answer that must be waited for, and is called on an event loop.

    The loop must not wait, so the client calls it again once the answers are there. It is not an `Exception`: a
    serialiser that wraps another one, and takes its exceptions for bad data, must let this pass.

    Args:
        answers: the futures to wait for. Another thread is making the requests already.
    """

    def __init__(self, answers: tuple[Future[Any], ...]) -> None:
        super().__init__("an answer that is waited for elsewhere")
        self.answers = answers

    @property
    def is_over(self) -> bool:
        """True if all answers are there."""
        return all(answer.done() for answer in self.answers)

    def check(self) -> None:
        """Raise the error that took the place of an answer, if there is one; when all are there."""
        for answer in self.answers:
            error = answer.exception()
            # The caller of an answer may have been interrupted: then the request is made again.
            if isinstance(error, Exception):
                raise error

    def call_back(self, function: Callable[[], object]) -> None:
        """Call this whenever one of the answers is there; any thread may be the one that calls."""
        for answer in self.answers:
            answer.add_done_callback(lambda _: function())
