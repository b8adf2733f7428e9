"""The collector alone: turns, caps, fetch epochs, memory (A1, A2, A4), without a thread or a socket."""

from __future__ import annotations

import pytest

from kadence.consumer.events import Seek
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import CompletedFetch, SharedState
from kadence.consumer.subscription import Subscription
from kadence.errors import CorruptRecordError
from kadence.records import OWN_COLUMNS, FetchedRecords, codecs, encode_batch
from kadence.types import TopicPartition


class Arena:
    """A fetch epoch that remembers whether it was given back."""

    def __init__(self) -> None:
        self.holds = 1
        self.size = 0

    def retain(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


def collector(shared_state: SharedState) -> FetchCollector:
    return FetchCollector(shared_state, check_crcs=True, max_batch_bytes=1 << 20)


def shared_state() -> SharedState:
    return SharedState(lambda: None)


def shared_partition(partition: int, offset: int = 0) -> SharedPartition:
    made = SharedPartition(TopicPartition("t", partition), 1)
    made.origin = Origin(1, offset, None)
    return made


def put(
    shared_state: SharedState,
    shared_partition: SharedPartition,
    count: int,
    *,
    offset: int = 0,
    fetch_epoch: int = 1,
    damage: bool = False,
    value: bytes = b"v",
) -> Arena:
    data = bytearray(encode_batch([(0, None, value, ())] * count, base_offset=offset))
    if damage:
        data[-1] ^= 1
    arena = Arena()
    shared_state.put(CompletedFetch(shared_partition, fetch_epoch, offset, memoryview(data), arena, None))
    return arena


def taken(collector: FetchCollector, limit: int) -> list[tuple[int, int]]:
    """(partition, how many) in the order served."""
    return [(partition.partition, len(records)) for partition, records in collector.take_records(limit)]


def consumed(shared_state: SharedState) -> float:
    """records-consumed-total of the topic."""
    return shared_state.measures.poll_measures.topic("t").records.total


def test_a1_the_cap_holds_and_the_rest_is_kept() -> None:
    shared, one = shared_state(), shared_partition(0)
    arena = put(shared, one, 12)
    subject = collector(shared)
    assert taken(subject, 5) == [(0, 5)]
    assert one.position == Origin(1, 5, None)
    assert taken(subject, 5) == [(0, 5)]
    assert arena.holds == 1
    assert taken(subject, 5) == [(0, 2)]
    assert arena.holds == 0
    assert taken(subject, 5) == []


def test_a2_whoever_was_served_last_goes_to_the_end() -> None:
    shared = shared_state()
    mountain, small, other = shared_partition(0), shared_partition(1), shared_partition(2)
    put(shared, mountain, 1000)
    put(shared, small, 3)
    put(shared, other, 4)
    subject = collector(shared)
    assert taken(subject, 10) == [(0, 10)]
    assert taken(subject, 10) == [(1, 3), (2, 4), (0, 3)]
    put(shared, small, 3, offset=3)
    assert taken(subject, 10) == [(0, 10)]
    assert taken(subject, 10) == [(1, 3), (0, 7)]


def test_a_paused_partition_keeps_its_place_and_its_bytes() -> None:
    shared, one, two = shared_state(), shared_partition(0), shared_partition(1)
    arena = put(shared, one, 3)
    put(shared, two, 3)
    subject = collector(shared)
    one.paused = True
    assert taken(subject, 10) == [(1, 3)]
    assert arena.holds == 1
    one.paused = False
    assert taken(subject, 10) == [(0, 3)]


def test_c1_data_of_an_old_lease_is_dropped_when_it_would_be_handed_out() -> None:
    shared, one = shared_state(), shared_partition(0)
    stale = put(shared, one, 3)
    subject = collector(shared)
    one.fetch_epoch, one.origin = 2, Origin(2, 50, None)
    put(shared, one, 2, offset=50, fetch_epoch=2)
    assert taken(subject, 10) == [(0, 2)]
    assert stale.holds == 0
    assert one.drained_bytes > 0


def test_c1_data_of_a_partition_that_left_and_came_back_is_dropped() -> None:
    shared, before, after = shared_state(), shared_partition(0), shared_partition(0)
    stale = put(shared, before, 3)
    subject = collector(shared)
    before.fetch_epoch, before.origin = 9, None
    put(shared, after, 2)
    assert taken(subject, 10) == [(0, 2)]
    assert stale.holds == 0


def test_a_damaged_batch_is_raised_after_what_came_before_and_starves_nobody() -> None:
    shared, bad, good = shared_state(), shared_partition(0), shared_partition(1)
    put(shared, bad, 2)
    put(shared, bad, 2, offset=2, damage=True)
    put(shared, good, 2)
    subject = collector(shared)
    assert taken(subject, 10) == [(0, 2), (1, 2)]
    with pytest.raises(CorruptRecordError, match="t-0 at offset 2"):
        subject.take_records(10)
    put(shared, good, 2, offset=2)
    with pytest.raises(CorruptRecordError):
        subject.take_records(10)
    assert taken(subject, 10) == [(1, 2)]
    assert bad.position == Origin(1, 2, None)


def test_proved_is_what_an_earlier_poll_returned() -> None:
    shared, one = shared_state(), shared_partition(0)
    put(shared, one, 4)
    subject = collector(shared)
    subject.mark_processed()
    taken(subject, 2)
    assert one.processed_position() == one.origin
    subject.mark_processed()
    taken(subject, 2)
    assert one.processed_position() == Origin(1, 2, None)


def test_c6_the_network_thread_is_woken_only_when_it_waits_for_room() -> None:
    shared, one = shared_state(), shared_partition(0)
    put(shared, one, 2)
    put(shared, one, 2, offset=2)
    subject = collector(shared)
    taken(subject, 2)
    assert shared.wakes == 0
    # One fetch is done with, and the network thread waits for another byte; then for memory.
    one.wake_bytes = one.drained_bytes + 1
    taken(subject, 2)
    assert shared.wakes == 1
    assert list(shared.changed) == [one]
    for start in (4, 6, 8):
        put(shared, one, 2, offset=start)
    taken(subject, 2)
    assert shared.wakes == 1, "told once"
    shared.wake_held = 0
    shared.copies.copied = 1
    taken(subject, 2)
    assert shared.wakes == 1, "more than that is held"
    shared.copies.copied = 0
    taken(subject, 2)
    assert (shared.wakes, shared.wake_held) == (2, -1)


def test_closing_gives_everything_back() -> None:
    shared, one = shared_state(), shared_partition(0)
    arenas = [put(shared, one, 2), put(shared, one, 2, offset=2)]
    subject = collector(shared)
    taken(subject, 1)
    subject.drop_all()
    assert [arena.holds for arena in arenas] == [0, 0]
    assert shared.decompressed_bytes == 0


def test_a4_a_fetch_of_nothing_but_control_batches_moves_the_position() -> None:
    shared, one = shared_state(), shared_partition(0)
    data = encode_batch([(0, b"\0\0\0\1", b"\0" * 6, ())], base_offset=0, producer_id=7, control=True)
    shared.put(CompletedFetch(one, 1, 0, memoryview(data), Arena(), None))
    subject = collector(shared)
    assert taken(subject, 10) == []
    assert subject.advanced
    assert one.current() == Origin(1, 1, None)


# ---------------------------------------------------------------- memory


def compressed(shared: SharedState, shared_partition: SharedPartition, count: int, size: int) -> None:
    data = encode_batch([(0, None, bytes(size), ())] * count, compression="lz4")
    shared.put(CompletedFetch(shared_partition, 1, 0, memoryview(data), Arena(), None))


def test_a3_batches_left_in_the_middle_give_up_their_memory_to_others() -> None:
    shared, shared_partitions = shared_state(), [shared_partition(number) for number in range(4)]
    for each in shared_partitions:
        compressed(shared, each, 10, 1000)
    subject = FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20, unpack_bytes=25_000)
    seen: dict[int, list[int]] = {}
    while taking := subject.take_records(3):
        assert shared.decompressed_bytes <= 25_000
        for partition, records in taking:
            seen.setdefault(partition.partition, []).extend(record.offset for record in records)
    assert seen == {number: list(range(10)) for number in range(4)}
    assert shared.decompressed_bytes == 0


def test_a3_a_reader_s_last_batch_counts_while_its_next_one_is_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, shared_partitions = shared_state(), [shared_partition(0), shared_partition(1)]
    for each in shared_partitions:
        batches = [
            encode_batch([(0, None, bytes(1000), ())] * 10, base_offset=start, compression="lz4")
            for start in (0, 10)
        ]
        shared.put(CompletedFetch(each, 1, 0, memoryview(b"".join(batches)), Arena(), None))
    held: list[int] = []
    decompress = codecs.decompress

    def watched(codec: int, data: memoryview, limit: int) -> object:
        result = decompress(codec, data, limit)
        held.append(shared.decompressed_bytes + memoryview(result).nbytes)
        return result

    monkeypatch.setattr(f"{FetchedRecords.__module__}.decompress", watched)
    subject = FetchCollector(
        shared, check_crcs=True, max_batch_bytes=1 << 20, unpack_bytes=25_000, decoded_bytes=0
    )
    # Both are left in the middle of their first batch, then the first one goes on into its second.
    count = 0
    while taking := subject.take_records(6):
        count += sum(len(records) for _, records in taking)
    assert count == 40
    assert max(held) <= 25_000


SIZE = 100_000
ROOM = 250_000


def swollen(partitions: int, batches: int, compression: str = "zstd") -> FetchCollector:
    """Memory for two and a half batches of one record, which has few bytes where it is compressed."""
    shared = shared_state()
    for number in range(partitions):
        data = b"".join(
            encode_batch([(0, None, bytes(SIZE), ())], base_offset=at, compression=compression)
            for at in range(batches)
        )
        shared.put(CompletedFetch(shared_partition(number), 1, 0, memoryview(data), Arena(), None))
    return FetchCollector(shared, check_crcs=True, max_batch_bytes=1 << 20, buffer_memory=ROOM)


@pytest.mark.parametrize("limit", [500, 10])
@pytest.mark.parametrize(("partitions", "batches"), [(1, 20), (20, 1), (4, 5)])
def test_a_poll_ends_with_the_batch_with_which_it_passes_the_memory(
    partitions: int, batches: int, limit: int
) -> None:
    subject = swollen(partitions, batches)
    given: list[int] = []
    while taking := subject.take_records(limit):
        given.append(sum(len(records) for _, records in taking))
    assert sum(given) == 20
    assert max(given) <= 3, "the third record is the one with which they pass it"


def test_what_is_decoded_ahead_for_small_polls_counts_for_those() -> None:
    subject = swollen(20, 1)
    given: list[int] = []
    while taking := subject.take_records(10):
        given.append(sum(len(records) for _, records in taking))
        subject.arm(0, 10)
    assert sum(given) == 20
    assert max(given) <= 3


def test_columns_end_there_too() -> None:
    subject = swollen(4, 5)
    given: list[int] = []
    while taking := subject.take_columns(500, columns=OWN_COLUMNS):
        given.append(sum(len(part) for _, parts in taking for part in parts))
    assert sum(given) == 20
    assert max(given) <= 3


def test_records_that_were_not_compressed_are_bounded_by_the_fetch() -> None:
    subject = swollen(1, 20, "none")
    [(_, records)] = subject.take_records(500)
    assert len(records) == 20


def pressed(
    sizes: dict[int, int], arena: Arena, paused: set[int]
) -> tuple[SharedState, FetchCollector, list[SharedPartition]]:
    """Partitions with a batch each in one arena, memory used up."""
    shared, shared_partitions = shared_state(), []
    for number, size in sizes.items():
        one = shared_partition(number)
        data = encode_batch([(0, None, b"v" * size, ())])
        arena.retain()
        shared.put(CompletedFetch(one, 1, 0, memoryview(data), arena, None))
        shared_partitions.append(one)
    arena.release()
    for one in shared_partitions:
        one.paused = one.partition.partition in paused
    shared.pressed = True
    return shared, collector(shared), shared_partitions


def test_a3_under_pressure_the_bytes_of_a_paused_partition_leave_an_arena_that_others_are_done_with() -> None:
    arena = Arena()
    arena.size = 10_000
    shared, subject, shared_partitions = pressed({0: 100, 1: 5_000}, arena, paused={0})
    assert taken(subject, 10) == [(1, 1)], "the other one is still in it: nothing is copied yet"
    assert arena.holds == 1
    shared.pressed = True
    wakes = shared.wakes
    assert taken(subject, 10) == []
    assert (arena.holds, shared.wakes) == (0, wakes + 1)
    assert 100 < shared.copied_bytes < 500
    shared_partitions[0].paused = False
    assert taken(subject, 10) == [(0, 1)]
    assert shared.copied_bytes == 0


def test_a3_what_is_most_of_its_arena_is_not_copied_while_others_have_records() -> None:
    arena, other = Arena(), Arena()
    arena.size = 6_000
    shared, subject, _ = pressed({0: 5_000}, arena, paused={0})
    shared.put(
        CompletedFetch(
            shared_partition(1), 1, 0, memoryview(encode_batch([(0, None, b"v", ())] * 2)), other, None
        )
    )
    assert taken(subject, 1) == [(1, 1)]
    assert (arena.holds, shared.copied_bytes) == (1, 0)


def test_a3_when_what_is_paused_is_all_there_is_the_largest_of_it_is_fetched_again() -> None:
    arena = Arena()
    arena.size = 6_000
    shared, subject, shared_partitions = pressed({0: 100, 1: 5_000}, arena, paused={0, 1})
    assert taken(subject, 10) == []
    (seek,) = shared.application_events
    assert isinstance(seek, Seek)
    assert (seek.shared_partition, seek.offset) == (shared_partitions[1], 0)
    assert arena.holds == 1


def test_a3_what_is_void_before_it_was_looked_at_wakes_who_waits_for_room_too() -> None:
    wakes = []
    shared, one = SharedState(lambda: wakes.append(1)), shared_partition(0)
    shared.shared_partitions = {one.partition: one}
    put(shared, one, 10)
    subject = collector(shared)
    subject.mark_processed()
    subject.take_columns(5, columns=OWN_COLUMNS)
    arena = put(shared, one, 10, offset=10)
    # Rows that were given as columns are fetched again.
    subject.put_back()
    # The network thread goes back, and finds no room for what it would fetch.
    shared.application_events.clear()
    shared.wake_held = 0
    wakes.clear()
    assert taken(subject, 5) == []
    assert arena.holds == 0
    assert (shared.wake_held, len(wakes)) == (-1, 1)


@pytest.mark.parametrize("read_before", [0, 4])
def test_c7_what_a_poll_took_comes_again_though_a_truncation_moved_the_lease_meanwhile(
    read_before: int,
) -> None:
    shared, one = shared_state(), shared_partition(0)
    shared.shared_partitions = {one.partition: one}
    put(shared, one, 10)
    subject = collector(shared)
    if read_before:
        taken(subject, read_before)
    subject.mark_processed()
    taken(subject, 5)
    # The network thread: the log was cut behind what was read, and reading goes on under another fetch epoch.
    at, processed = one.current(), one.processed_position()
    assert at is not None
    assert processed is not None
    one.fetch_epoch = 2
    one.origin = Origin(2, at.offset, at.leader_epoch, (processed.offset, processed.leader_epoch))
    subject.put_back()
    now = one.current()
    assert now is not None
    assert now.offset == read_before
    [seek] = shared.application_events
    assert isinstance(seek, Seek)
    assert seek.offset == read_before
    assert consumed(shared) == read_before, "it is counted when it comes again"


@pytest.mark.parametrize("polls_first", [True, False])
def test_rows_before_a_cut_do_not_come_again_whenever_the_network_thread_hears_of_it(
    polls_first: bool,
) -> None:
    subscription, shared = Subscription(), shared_state()
    partition = TopicPartition("t", 0)
    subscription.assign([partition])
    subscription.position(partition, 0, None)
    one = subscription.partitions[partition].shared_partition
    shared.shared_partitions = {partition: one}
    put(shared, one, 3, fetch_epoch=one.fetch_epoch)
    subject = collector(shared)

    def network_thread() -> None:
        for event in shared.application_events:
            assert isinstance(event, Seek)
            subscription.position(partition, event.offset, event.leader_epoch, event.processed)
        shared.application_events.clear()

    subject.mark_processed()
    subject.take_columns(10, columns=OWN_COLUMNS)
    # The second row is bad: the poll returns the first one, and the next one begins at the second.
    subject.cut(partition, 1)
    if not polls_first:
        network_thread()
    subject.mark_processed()
    if polls_first:
        network_thread()
    processed = one.processed_position()
    assert processed is not None
    assert processed.offset == 1
    put(shared, one, 2, offset=1, fetch_epoch=one.fetch_epoch)
    subject.take_columns(10, columns=OWN_COLUMNS)
    # It raises.
    subject.put_back()
    now = one.current()
    assert now is not None
    assert now.offset == 1


def test_what_an_earlier_stretch_of_reading_has_processed_proves_nothing_of_a_later_one() -> None:
    subscription, partition = Subscription(), TopicPartition("t", 0)
    subscription.assign([partition])
    subscription.position(partition, 90, None)
    one = subscription.partitions[partition].shared_partition
    one.processed = one.position = Origin(one.fetch_epoch, 100, None)
    # The application seeks to the beginning, reads 120 records, and the log turns out to be another one from 110 on.
    subscription.position(partition, 0, None)
    one.position = Origin(one.fetch_epoch, 120, None)
    subscription.position(partition, 110, None, (0, None))
    processed = one.processed_position()
    assert processed is not None
    assert processed.offset == 0


@pytest.mark.parametrize("how", ["records", "let go", "columns"])
def test_what_is_put_back_is_counted_once(how: str) -> None:
    shared, one = shared_state(), shared_partition(0)
    shared.shared_partitions = {one.partition: one}
    put(shared, one, 10)
    put(shared, one, 10, offset=10)
    subject = collector(shared)

    def poll() -> None:
        subject.mark_processed()
        if how == "columns":
            subject.take_columns(10, columns=OWN_COLUMNS)
        else:
            subject.take_records(10)
            if how == "let go":
                subject.steps.let_go()

    poll()
    assert consumed(shared) == 10
    poll()
    subject.put_back()
    subject.put_back()  # interrupted once more
    assert consumed(shared) == 10
    if how != "records":
        [seek] = shared.application_events
        assert isinstance(seek, Seek)
        # The network thread.
        one.fetch_epoch, one.origin = 2, Origin(2, seek.offset, None)
        put(shared, one, 10, offset=10, fetch_epoch=2)
    poll()
    assert consumed(shared) == 20
    poll()
    subject.put_back()
    assert consumed(shared) == 20
