"""Implements the interfaces of the sink with Kadence's clients. The only module of the sink that imports them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from kadence import Admin, Producer
from kadence.admin.transactions import end_transactions
from kadence.config import AdminConfig, keys
from kadence.errors import BrokerError, ConfigError, KafkaError, UnsupportedVersionError
from kadence.producer.handing_over import begin_as, commit, leave_open
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, OffsetAndMetadata, OpenTransaction, TopicPartition
from kadence_spark.pool import Pool
from kadence_spark.sink.task import PendingRecords

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COORDINATORS", "PRODUCERS", "WRITERS", "Coordinators", "ProducerSink", "TransactionalSink"]

_NAME: Final = "spark-kafka-sink"
"""The default client.id."""


_TRANSACTION_MS: Final = 300_000
"""Kafka's minute is short for a task: its transaction is open from its first row until the whole batch is written."""

_FAREWELL_SECONDS: Final = 5.0
"""How long the abort of a failed task's transaction may take."""

_ADMIN_KEYS: Final = {key.name for key in keys(AdminConfig)}

_NOT_ENDED: Final = frozenset(
    {
        error_codes.INVALID_PRODUCER_EPOCH,
        error_codes.INVALID_PRODUCER_ID_MAPPING,
        error_codes.INVALID_TXN_STATE,
        error_codes.PRODUCER_FENCED,
    }
)
"""Final errors of a coordinator: this transaction is not open (any more)."""


def _transactional(client: Mapping[str, str]) -> Producer:
    settings: dict[str, Any] = {"client.id": _NAME, "transaction.timeout.ms": _TRANSACTION_MS, **client}
    # Each transaction has another id.
    return Producer({**settings, "transactional.id": _NAME})


class ProducerSink:
    """`kadence_spark.sink.task.RecordSink`, for rows that count once they are acknowledged."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._producer = Producer({"client.id": _NAME, **client})

    def send(self, records: pa.RecordBatch, topic: str | None) -> PendingRecords:
        return self._producer.send_arrow(records, topic)

    def park(self) -> None:
        """Nothing to do: an idle producer does not send."""

    def close(self) -> None:
        # The task has failed and will be repeated: unsent records would only arrive twice.
        self._producer.close(0)


class TransactionalSink:
    """The same for rows that count when the driver ends their transaction.

    One producer writes the transactions of many tasks, each with an id of its own.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        self._servers = client["bootstrap.servers"]
        self._producer = _transactional(client)
        self._name = ""
        self._is_open = False

    def use(self, transactional_id: str) -> Self:
        """Use this transactional id for the next task. Its transaction begins with the first row."""
        self._name = transactional_id
        return self

    def send(self, records: pa.RecordBatch, topic: str | None) -> PendingRecords:
        if not self._is_open:
            try:
                begin_as(self._producer, self._name)
            except UnsupportedVersionError:
                raise ConfigError(
                    f"option transactions=true: the brokers at {self._servers} have no transactions; leave the "
                    "option out"
                ) from None
            self._is_open = True
        return self._producer.send_arrow(records, topic)

    def mark(self, group: str, at: TopicPartition, offset: int, text: str) -> None:
        """Have a group's offset become part of the transaction."""
        if self._is_open:
            marker = {at: OffsetAndMetadata(offset, metadata=text)}
            self._producer.send_offsets_to_transaction(marker, GroupMetadata(group))

    def leave(self) -> OpenTransaction | None:
        """Leave the transaction open for the driver; None: there were no rows. All rows are acknowledged."""
        if not self._is_open:
            return None
        self._is_open = False
        return leave_open(self._producer)

    def park(self) -> None:
        """Nothing to do: the task's transaction was left to the driver."""

    def close(self) -> None:
        # Aborts an open transaction; otherwise readers would wait for it until transaction.timeout.ms.
        self._producer.close(_FAREWELL_SECONDS)


PRODUCERS: Final[Pool[ProducerSink]] = Pool()
"""The producers of this process."""

WRITERS: Final[Pool[TransactionalSink]] = Pool()
"""The transactional producers of this process."""


class Coordinators:
    """`kadence_spark.sink.ending.Coordinators`."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._producer: Producer | None = None
        self._has_begun = False
        settings = {"client.id": _NAME, **client}
        self._admin = Admin({key: value for key, value in settings.items() if key in _ADMIN_KEYS})

    def open_names(self, prefix: str) -> set[str]:
        listed = self._admin.list_transactions(states=["Ongoing"])
        return {each.transactional_id for each in listed if each.transactional_id.startswith(prefix)}

    def are_open(self, transactions: Collection[OpenTransaction]) -> bool:
        found = self._admin.describe_transactions(
            [each.transactional_id for each in transactions], raise_errors=False
        )
        for error in found.errors.values():
            if not isinstance(error, BrokerError):
                raise error
        return all(
            (seen := found.get(each.transactional_id)) is not None
            and (seen.state, seen.producer_id, seen.producer_epoch)
            == ("Ongoing", each.producer_id, each.epoch)
            for each in transactions
        )

    def end(
        self, transactions: Collection[OpenTransaction], *, committed: bool
    ) -> dict[OpenTransaction, KafkaError]:
        outcomes = self._admin._shell.run(None, end_transactions, transactions, committed=committed)
        refused: dict[OpenTransaction, KafkaError] = {}
        for each in transactions:
            error = outcomes.errors.get(each.transactional_id)
            if isinstance(error, BrokerError) and error.code in _NOT_ENDED:
                refused[each] = error
            elif error is not None:
                raise error
        return refused

    def fence(self, names: Iterable[str]) -> None:
        self._admin.fence_producers(names)

    def offsets(
        self, group: str, *, stable_at: TopicPartition | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if stable_at is None:
            return dict(self._admin.list_consumer_group_offsets(group))
        return dict(self._admin.list_consumer_group_offsets(group, [stable_at], require_stable=True))

    def begin(self, name: str) -> None:
        if self._producer is None:
            self._producer = _transactional(self._client)
        begin_as(self._producer, name)
        self._has_begun = True

    def commit_offsets(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        assert self._producer is not None
        for group, kept in offsets.items():
            self._producer.send_offsets_to_transaction(kept, GroupMetadata(group))
        commit(self._producer)
        self._has_begun = False

    def park(self) -> None:
        if self._producer is not None and self._has_begun:
            leave_open(self._producer)
            self._has_begun = False

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(_FAREWELL_SECONDS)
        self._admin.close()


COORDINATORS: Final[Pool[Coordinators]] = Pool()
"""The client of this process that ends transactions."""
