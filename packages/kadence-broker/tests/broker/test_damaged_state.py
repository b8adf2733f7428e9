"""What a coordinator cannot read of its topic is logged and left out; the groups that it can read are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.test_coordination import Stage

from kadence.protocol.consumer_group_current_member_assignment_record import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from kadence_broker.cluster import coordinator_partition
from kadence_broker.coordinator import Record


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.close()


def test_a_batch_that_cannot_be_read_costs_what_it_holds(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    for offset, group in ((1, "g"), (2, "h"), (3, "g")):
        stage.commit(offset, group)
    log = stage.coordination.topic.partition(coordinator_partition("h")).log
    (records,) = log.segments[0].views(61, 62)
    records[0] = 0x7E  # the record's length
    stage.coordination = stage.again()
    assert stage.committed("g") == 3
    assert stage.committed("h") == -1
    assert "a batch of <Partition __consumer_offsets" in caplog.text


def test_a_record_of_a_state_that_is_unknown_here_costs_that_record(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.commit(1)
    value = ConsumerGroupCurrentMemberAssignmentValue(state=9)
    record = Record(ConsumerGroupCurrentMemberAssignmentKey("g", "m"), value)
    stage.coordination.topic.append(coordinator_partition("g"), [record])
    stage.coordination = stage.again()
    assert stage.committed("g") == 1
    assert "there is no state 9" in caplog.text
