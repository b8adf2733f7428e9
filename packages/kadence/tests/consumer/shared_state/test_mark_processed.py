"""What the program commits is processed (`SharedPartition.mark_processed`), whatever is known of its records before."""

from __future__ import annotations

import itertools

import pytest

from kadence.consumer.decoded_records import DecodedRecords
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.records import Record
from kadence.types import TopicPartition

START, COUNT = 10, 4
EPOCH, EARLIER = 3, 2


def decoded_records(fetch_epoch: int, began: int, index: int, *, is_processed: bool) -> DecodedRecords:
    """Of offsets 10, 12, 14 and 16, of which polls have returned the first ``index``."""
    records = [Record("t", 0, START + 2 * number, 0, 0, None, None, (), 7) for number in range(COUNT)]
    decoded = DecodedRecords(fetch_epoch, records, START, 6, START + 2 * COUNT, 7)
    decoded.began, decoded.index, decoded.is_processed = began, index, is_processed
    return decoded


def after(number: int) -> int:
    """The position behind so many of the records."""
    return START if number == 0 else START + 2 * COUNT if number == COUNT else START + 2 * number - 1


@pytest.mark.parametrize(
    "is_processed", [False, True], ids=["those before are not known to be processed", "are"]
)
@pytest.mark.parametrize("fetch_epoch", [EARLIER, EPOCH])
@pytest.mark.parametrize("before", [None, (EARLIER, 11), (EPOCH, 9), (EPOCH, 12), (EPOCH, 15)])
def test_it_goes_forward_to_what_was_returned_at_most(
    before: tuple[int, int] | None, fetch_epoch: int, *, is_processed: bool
) -> None:
    for began, index in itertools.combinations_with_replacement(range(COUNT + 1), 2):
        for offset in range(START - 1, START + 2 * COUNT + 2):
            subject = SharedPartition(TopicPartition("t", 0), EPOCH)
            subject.origin = Origin(EPOCH, START, 6)
            subject.processed = None if before is None else Origin(*before, None)
            subject.decoded = decoded_records(fetch_epoch, began, index, is_processed=is_processed)
            # By hand: positions of an earlier fetch epoch say nothing.
            is_present = fetch_epoch == EPOCH
            known = [START]
            if is_present and (began or is_processed):
                known.append(after(began))
            if before is not None and before[0] == EPOCH:
                # It is the only one that is known then, if nothing of the decoded records is.
                known = [*known[1:], before[1]]
            returned = after(index) if is_present else START
            expected = offset if max(known) < offset <= returned else max(known)
            subject.mark_processed(offset, 7)
            found = subject.processed_position()
            assert found is not None
            assert (found.fetch_epoch, found.offset) == (EPOCH, expected), (began, index, offset)


def test_without_a_position_nothing_is_marked() -> None:
    subject = SharedPartition(TopicPartition("t", 0), EPOCH)
    subject.decoded = decoded_records(EPOCH, 1, 2, is_processed=True)
    subject.mark_processed(12, 7)
    assert subject.processed is None


def test_the_epoch_of_the_leader_goes_with_it() -> None:
    subject = SharedPartition(TopicPartition("t", 0), EPOCH)
    subject.origin = Origin(EPOCH, START, 6)
    subject.decoded = decoded_records(EPOCH, 1, 2, is_processed=True)
    subject.mark_processed(13, 5)
    assert subject.processed_position() == Origin(EPOCH, 13, 5)
