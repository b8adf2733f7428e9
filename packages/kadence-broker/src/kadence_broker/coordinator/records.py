"""The records that coordinators store, with Kafka's own keys and values, and their encoding in the log.

A key is an int16 type and the key's fields, a value an int16 version and the value's fields. A null value is a
tombstone, which removes the key. Kafka's tools read these bytes. Source: CoordinatorRecordSerde of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from kadence.logs import logger
from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kadence.protocol.consumer_group_member_metadata_record import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from kadence.protocol.consumer_group_metadata_record import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from kadence.protocol.consumer_group_partition_metadata_record import (
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from kadence.protocol.consumer_group_regular_expression_record import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from kadence.protocol.consumer_group_target_assignment_member_record import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
)
from kadence.protocol.consumer_group_target_assignment_metadata_record import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kadence.protocol.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.share_group_current_member_assignment_record import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from kadence.protocol.share_group_member_metadata_record import (
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
)
from kadence.protocol.share_group_metadata_record import (
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from kadence.protocol.share_group_state_partition_metadata_record import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
)
from kadence.protocol.share_group_target_assignment_member_record import (
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
)
from kadence.protocol.share_group_target_assignment_metadata_record import (
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from kadence.protocol.share_snapshot_record import ShareSnapshotKey, ShareSnapshotValue
from kadence.protocol.share_update_record import ShareUpdateKey, ShareUpdateValue
from kadence.protocol.transaction_log_record import TransactionLogKey, TransactionLogValue
from kadence.wire import Buffer, Reader, WireError, Writer

__all__ = [
    "MEMBER_STATES",
    "SHARE_RECORD_STATES",
    "TRANSACTION_STATES",
    "Record",
    "batch_bytes",
    "decode",
    "decode_share_state",
    "decode_transaction",
    "encode",
    "group_of",
]

_log = logger("kadence.coordinator")

_INT16: Final = Struct(">h")
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 12
"""Lengths, attributes and differences of time and offset, each in one to four bytes."""

_Types = dict[int, tuple[Any, Any]]

_TYPES: Final[_Types] = {
    key.RECORD_TYPE: (key, value)
    for key, value in (
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    )
}
"""Of `__consumer_offsets`."""

_TRANSACTION_TYPES: Final[_Types] = {TransactionLogKey.RECORD_TYPE: (TransactionLogKey, TransactionLogValue)}
"""Of `__transaction_state`."""

_SHARE_STATE_TYPES: Final[_Types] = {
    key.RECORD_TYPE: (key, value)
    for key, value in ((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue))
}
"""Of `__share_group_state`."""


TRANSACTION_STATES: Final = range(6)
"""The numbers of `kadence_broker.coordinator.transactions.transaction.State`, which imports this module."""
MEMBER_STATES: Final = range(3)
"""Those of `kadence_broker.coordinator.consumer.member.MemberState`."""
SHARE_RECORD_STATES: Final = range(5)
"""Those of `kadence_broker.share.delivery.RecordState`."""


@dataclass(frozen=True, slots=True)
class Record:
    """One change of state.

    Attributes:
        key, value: generated messages (``protocol/*_record.py``); a value of None is a tombstone.
        producer: id and epoch, for the offsets of a transaction: they count once it has been committed.
    """

    key: Any
    value: Any | None
    producer: tuple[int, int] | None = None


def group_of(record: Record) -> str:
    """The group of the record; it decides the partition of `__consumer_offsets`."""
    key = record.key
    return str(key.group if isinstance(key, OffsetCommitKey | GroupMetadataKey) else key.group_id)


def batch_bytes(records: Iterable[Record]) -> int:
    """The length of a batch of these records."""
    each = (len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value in map(encode, records))
    return _BATCH_OVERHEAD + sum(each)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value as in the log.

    Raises:
        WireError: a field does not fit its type.
    """
    key, value = record.key, record.value
    encoded_key = _encode(key, key.RECORD_TYPE, 0)
    if value is None:
        return encoded_key, None
    version = _version(value)
    return encoded_key, _encode(value, version, version)


def decode(key: Buffer, value: Buffer | None) -> Record | None:
    """The record of these bytes; None for an unknown type, which a reader of the log skips.

    Raises:
        WireError: the bytes are not such a record.
    """
    return _decode(_TYPES, key, value)


def decode_transaction(key: Buffer, value: Buffer | None) -> Record | None:
    """As `decode`, for records of transactions."""
    return _decode(_TRANSACTION_TYPES, key, value)


def decode_share_state(key: Buffer, value: Buffer | None) -> Record | None:
    """As `decode`, for the states of share-partitions (KIP-932)."""
    return _decode(_SHARE_STATE_TYPES, key, value)


def _decode(types: _Types, key: Buffer, value: Buffer | None) -> Record | None:
    reader = Reader(key)
    found = types.get(record_type := reader.int16())
    if found is None:
        _log.warning("skipped a record of type %d, which this coordinator does not know", record_type)
        return None
    key_type, value_type = found
    decoded_key = key_type.read(reader, 0)
    if value is None:
        return Record(decoded_key, None)
    reader = Reader(value)
    version = reader.int16()
    if not value_type.MIN_VERSION <= version <= value_type.MAX_VERSION:
        raise WireError(f"{value_type.__name__} version {version}: no such version is known here")
    decoded = value_type.read(reader, version)
    if (fault := _fault(decoded)) is not None:
        raise WireError(f"{value_type.__name__} version {version}: {fault}")
    return Record(decoded_key, decoded)


def _fault(value: Any) -> str | None:
    """The error of a value that no known coordinator writes; to replay it would end the loading of all others."""
    if isinstance(value, TransactionLogValue) and value.transaction_status not in TRANSACTION_STATES:
        return f"there is no state {value.transaction_status}"
    if isinstance(value, ShareSnapshotValue | ShareUpdateValue):
        for each in value.state_batches:
            if each.delivery_state not in SHARE_RECORD_STATES or each.first_offset > each.last_offset:
                return f"offsets {each.first_offset} to {each.last_offset} in state {each.delivery_state}"
    if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
        if value.state not in MEMBER_STATES:
            return f"there is no state {value.state}"
        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
            if topic.assignment_epochs and len(topic.assignment_epochs) != len(topic.partitions):
                return f"{len(topic.assignment_epochs)} epochs of {len(topic.partitions)} partitions"
    return None


def _encode(message: Any, head: int, version: int) -> bytes:
    writer = Writer()
    writer.put(_INT16.pack(head))
    message.write(writer, version)
    return writer.getvalue()


def _version(value: Any) -> int:
    """The version that Kafka 4.3.1 writes. An offset with an expiry time of its own has another version."""
    if isinstance(value, OffsetCommitValue):
        return 1 if value.expire_timestamp >= 0 else 4
    if isinstance(value, GroupMetadataValue):
        return 3
    return int(value.MAX_VERSION)
