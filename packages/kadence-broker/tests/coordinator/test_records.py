"""What the coordinator stores, as bytes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.protocol.values import Case, Limits, messages, modules

from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kadence.protocol.consumer_group_metadata_record import ConsumerGroupMetadataKey
from kadence.protocol.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence.protocol.transaction_log_record import TransactionLogKey, TransactionLogValue
from kadence.wire import WireError
from kadence_broker.coordinator.consumer.member import MemberState
from kadence_broker.coordinator.records import (
    MEMBER_STATES,
    TRANSACTION_STATES,
    Record,
    decode,
    decode_transaction,
    encode,
    group_of,
)
from kadence_broker.coordinator.transactions.transaction import State

ELSEWHERE = ("TransactionLog", "ShareSnapshot", "ShareUpdate")
"""Records of other topics than `__consumer_offsets`."""
KINDS = [module for module in modules() if module.record_type is not None and module.name not in ELSEWHERE]
STATES = Limits((("state", st.sampled_from(MEMBER_STATES)),))
WRITTEN = {"GroupMetadata": 3}
"""The version that is written, where it is not the newest."""


@pytest.mark.parametrize("module", KINDS, ids=lambda module: module.name)
@examples(10)
@given(data=st.data())
def test_every_kind_reads_back_as_what_was_written(module: Any, data: st.DataObject) -> None:
    key, value = module.tops
    version = WRITTEN.get(module.name, module.versions.last)
    values = st.none() | messages(Case(module, value, version), STATES)
    record = Record(data.draw(messages(Case(module, key, 0))), data.draw(values))
    if isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue):
        for topic in (*record.value.assigned_partitions, *record.value.partitions_pending_revocation):
            # As many as partitions, or none.
            topic.assignment_epochs = topic.assignment_epochs and topic.partitions
    encoded = encode(record)
    assert int.from_bytes(encoded[0][:2], "big") == module.record_type
    assert decode(*encoded) == record


def test_an_offset_and_its_tombstone_as_bytes() -> None:
    key = OffsetCommitKey("g", "t", 1)
    written = bytes.fromhex("0001 0001 67 0001 74 00000001")
    assert encode(Record(key, None)) == (written, None)
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=5, topic_id=b"i" * 16)
    as_bytes = bytes.fromhex("0004 0000000000000007 00000002 02 6d 0000000000000005 01 00 10") + b"i" * 16
    assert encode(Record(key, value)) == (written, as_bytes)


def test_an_offset_that_expires_is_written_in_the_version_that_can_say_so() -> None:
    record = Record(OffsetCommitKey("g", "t", 1), OffsetCommitValue(offset=7, expire_timestamp=9))
    key, value = encode(record)
    assert value is not None
    assert value[:2] == b"\0\1"
    assert decode(key, value) == record


def test_old_versions_of_a_value_can_be_read() -> None:
    key, _ = encode(Record(GroupMetadataKey("g"), None))
    value = bytes.fromhex("0000 0001 63 00000003 ffff ffff 00000000")
    assert decode(key, value) == Record(GroupMetadataKey("g"), GroupMetadataValue("c", 3, None, None))


def test_an_unknown_type_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode(b"\0\x63\0\1g", b"") is None
    assert "skipped a record of type 99" in caplog.text


def test_bytes_that_are_no_record_are_an_error() -> None:
    with pytest.raises(WireError):
        decode(b"\0\1\0\5g", None)
    key, _ = encode(Record(GroupMetadataKey("g"), None))
    with pytest.raises(WireError, match="no such version"):
        decode(key, b"\0\x09")


def test_a_state_that_is_none_is_an_error() -> None:
    assert set(MEMBER_STATES) == {each.value for each in MemberState}
    assert set(TRANSACTION_STATES) == {each.value for each in State}
    member = encode(
        Record(
            ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
            ConsumerGroupCurrentMemberAssignmentValue(state=7),
        )
    )
    with pytest.raises(WireError, match="there is no state 7"):
        decode(*member)
    transaction = encode(Record(TransactionLogKey("x"), TransactionLogValue(transaction_status=8)))
    with pytest.raises(WireError, match="there is no state 8"):
        decode_transaction(*transaction)


def test_epochs_of_other_partitions_are_an_error() -> None:
    topic = TopicPartitions(b"t" * 16, [0, 1], assignment_epochs=[1])
    value = ConsumerGroupCurrentMemberAssignmentValue(assigned_partitions=[topic])
    with pytest.raises(WireError, match="1 epochs of 2 partitions"):
        decode(*encode(Record(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)))


def test_the_group_of_a_record() -> None:
    assert group_of(Record(GroupMetadataKey("a"), None)) == "a"
    assert group_of(Record(ConsumerGroupMetadataKey("b"), None)) == "b"
